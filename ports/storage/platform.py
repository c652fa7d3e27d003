"""What is asked of storage about the whole platform."""

from datetime import datetime
from typing import Protocol

from core.platform import Figures


class PlatformRead(Protocol):
    async def figures(self) -> Figures: ...

    async def due_jobs(self, now: datetime) -> int:
        """How many pieces of background work are due."""
        ...
