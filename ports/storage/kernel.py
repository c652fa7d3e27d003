"""Storage of rate limits, and of the tokens of organizations."""

from collections.abc import Awaitable
from datetime import datetime
from typing import Protocol, TypeVar
from uuid import UUID

from core.kernel.rate_limits import Bucket, RequestTokens, Window

T = TypeVar("T")


class OrganizationTokensRead(Protocol[T]):
    """Read access to the tokens of one kind. They are stored as SHA-256 hashes."""

    async def of_org(self, org_id: UUID) -> list[T]:
        """Return all tokens of the organization, also those that no longer work, oldest first."""
        ...

    async def by_id(self, org_id: UUID, token_id: UUID) -> T | None: ...


class OrganizationTokens(OrganizationTokensRead[T], Protocol[T]):
    """Write access to these tokens. Callers lock the organization first."""

    async def add(self, token: T, token_hash: bytes) -> None: ...

    async def remove(self, org_id: UUID, token_id: UUID) -> None: ...


class Rates(Protocol):
    """Token buckets and windows per client, shared by all processes."""

    async def take(self, client: str, buckets: tuple[Bucket, ...], now: datetime) -> float:
        """Take one token from each bucket and return 0 if all have one.

        Otherwise take none and return the number of seconds until all have one.
        """

    def take_of_request(self, tokens: RequestTokens) -> Awaitable[None]:
        """Take the tokens of a request. Raises: Limited if a bucket is empty and this may refuse the request."""

    async def charge_window(self, client: str, window: Window, now: datetime) -> float:
        """Count one in this window and return 0, if it has fewer than its limit. Otherwise return the number of seconds until then."""

    async def window_wait(self, client: str, window: Window, now: datetime) -> float:
        """Return the wait that `charge_window` would return. Nothing is counted."""

    async def keep(self, sign_in_hash: bytes, client: str, buckets: tuple[Bucket, ...]) -> None:
        """Remember that these tokens were just taken for a sign-in, until the buckets have refilled them by themselves."""

    async def give_back(self, sign_in_hash: bytes, client: str, buckets: tuple[Bucket, ...], now: datetime) -> None:
        """Return these tokens, and the tokens kept for the sign-in that the buckets have not refilled yet. Each is returned once."""
