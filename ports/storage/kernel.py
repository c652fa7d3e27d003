"""Storage of rate limits."""

from datetime import datetime
from typing import Protocol

from core.kernel.rate_limits import Bucket


class Rates(Protocol):
    """Token buckets per client, shared by all processes."""

    async def charge(self, client: str, buckets: tuple[Bucket, ...], now: datetime) -> float:
        """Take one token from each bucket and return 0 if all have one.

        Otherwise take none and return the number of seconds until all have one.
        """

    async def keep(self, sign_in_hash: bytes, client: str, buckets: tuple[Bucket, ...]) -> None:
        """Remember that these tokens were just taken for a sign-in, until the buckets have refilled them by themselves."""

    async def give_back(self, sign_in_hash: bytes, client: str, buckets: tuple[Bucket, ...], now: datetime) -> None:
        """Return these tokens, and the tokens kept for the sign-in that the buckets have not refilled yet. Each is returned once."""
