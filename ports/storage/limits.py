"""What is asked of storage about limits of requests."""

from datetime import datetime
from typing import Protocol

from core.limits import Bucket


class Rates(Protocol):
    """Token buckets per client, shared by all processes (organizations.md section 8)."""

    async def charge(self, client: str, buckets: tuple[Bucket, ...], now: datetime) -> float:
        """Take one token from each bucket if all have one; else take none and return how many seconds until they do. 0 is yes."""
        ...
