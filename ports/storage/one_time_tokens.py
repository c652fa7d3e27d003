"""What is asked of storage about tokens of mails."""

from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.one_time_tokens import Purpose
from core.values import Email


class OneTimeTokensRead(Protocol):
    async def is_live(self, token_hash: bytes, purpose: Purpose, now: datetime) -> bool: ...


class OneTimeTokens(OneTimeTokensRead, Protocol):
    """Tokens of mails: kept as SHA-256, looked up by purpose and hash, good once (security.md A-5)."""

    async def add(
        self,
        token_hash: bytes,
        purpose: Purpose,
        user_id: UUID,
        email: Email,
        *,
        created_at: datetime,
        expires_at: datetime,
        org_id: UUID | None = None,
    ) -> None:
        """`org_id` is the organization whose design the page has that the token leads to."""
        ...

    async def newer_exists(self, user_id: UUID, purpose: Purpose, created_at: datetime) -> bool:
        """Whether there is an unused token that was asked for later than that."""
        ...

    async def redeem(self, token_hash: bytes, purpose: Purpose, now: datetime) -> Email | None:
        """Use the token up: the address it was sent to, or None when it is unknown, expired or used. Exactly one caller wins."""
        ...

    async def void(self, user_id: UUID, purpose: Purpose) -> None:
        """Remove every token of this purpose."""
        ...
