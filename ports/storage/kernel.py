"""Storage for rate limits, and for organization tokens."""

from collections.abc import Awaitable
from datetime import datetime
from typing import Protocol, TypeVar
from uuid import UUID

from core.kernel import rate_limits

T = TypeVar("T")


class OrganizationTokensRead(Protocol[T]):
    """Read access to organization tokens of a single kind. Tokens are stored as SHA-256 hashes."""

    async def of_org(self, org_id: UUID) -> list[T]:
        """Return all the organization's tokens, also tokens that no longer work, oldest first."""
        ...

    async def by_id(self, org_id: UUID, token_id: UUID) -> T | None: ...


class OrganizationTokens(OrganizationTokensRead[T], Protocol[T]):
    """Write access to these tokens. Callers lock the organization first."""

    async def add(self, token: T, token_hash: bytes) -> None: ...

    async def remove(self, org_id: UUID, token_id: UUID) -> None: ...


class Rates(Protocol):
    """Token buckets and windows per client, shared by all processes."""

    async def take(self, client: str, buckets: tuple[rate_limits.Bucket, ...], now: datetime) -> float:
        """Take a token from every bucket and return 0 if all have a token.

        Otherwise take none and return how many seconds remain until all have a token.
        """

    def take_of_request(self, tokens: rate_limits.RequestTokens) -> Awaitable[None]:
        """Take a request's tokens. Raises: Limited if a bucket is empty and this may refuse the request."""

    async def charge_window(self, client: str, window: rate_limits.Window, now: datetime) -> float:
        """Add 1 to this window's count and return 0, if the count is below the limit.

        Otherwise return how many seconds remain until then.
        """

    async def window_wait(self, client: str, window: rate_limits.Window, now: datetime) -> float:
        """Return the wait that `charge_window` would return. Nothing is counted."""

    async def keep(self, sign_in_hash: bytes, client: str, buckets: tuple[rate_limits.Bucket, ...]) -> None:
        """Remember that these tokens were just taken for a sign-in, until the buckets have refilled them by themselves."""

    async def give_back(self, sign_in_hash: bytes, client: str, buckets: tuple[rate_limits.Bucket, ...], now: datetime) -> None:
        """Return these tokens, and the tokens kept for the sign-in that the buckets have not refilled yet.

        A token is returned only once.
        """
