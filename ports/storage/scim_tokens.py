"""What is asked of storage about SCIM tokens."""

from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.scim_tokens import ScimStanding, ScimToken
from ports.storage.soon import Soon


class ScimTokensRead(Protocol):
    """SCIM tokens, looked at; they are kept as SHA-256."""

    async def standing(self, token_hash: bytes, now: datetime) -> ScimStanding | None:
        """Everything a request with this token is judged by, or None unless there is such a token and it has not expired."""
        ...

    async def of_org(self, org_id: UUID) -> list[ScimToken]:
        """Those of the organization, expired ones too, the oldest first."""
        ...

    async def by_id(self, org_id: UUID, token_id: UUID) -> ScimToken | None: ...


class ScimTokens(ScimTokensRead, Protocol):
    """SCIM tokens, changed. The organization is locked before any of these."""

    def is_live_soon(self, org_id: UUID, token_id: UUID, now: datetime) -> Soon[bool]:
        """Whether the organization has this token and it has not expired, with the next statement."""
        ...

    async def add(self, token: ScimToken, token_hash: bytes) -> None: ...
    async def remove(self, org_id: UUID, token_id: UUID) -> None: ...
