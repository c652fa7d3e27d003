"""Worker threads for CPU work."""

from collections.abc import Callable
from typing import Protocol, TypeVar

T = TypeVar("T")


class WorkerThreads(Protocol):
    """Worker threads for CPU work in the core that would block other requests for milliseconds."""

    async def run(self, work: Callable[[], T]) -> T:
        """Run `work` in a thread and return its result. Raises: the errors of `work`."""
