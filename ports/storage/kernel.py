"""Storage of the area kernel."""

from datetime import datetime
from typing import Protocol, TypeVar

from core.kernel.rate_limits import Bucket

# soon: What a statement finds, before it is awaited.

T_co = TypeVar("T_co", covariant=True)


class Soon(Protocol[T_co]):
    """What one statement finds, sent along with the next one of its transaction to save a round trip."""

    @property
    def value(self) -> T_co | None:
        """Known when that one has been awaited."""
        ...


# limits: What is asked of storage about limits of requests.


class Rates(Protocol):
    """Token buckets per client, shared by all processes (organizations.md section 8)."""

    async def charge(self, client: str, buckets: tuple[Bucket, ...], now: datetime) -> float:
        """Take one token from each bucket if all have one; else take none and return how many seconds until they do. 0 is yes."""
        ...
