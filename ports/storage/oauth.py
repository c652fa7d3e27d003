"""What is asked of storage about authorization codes."""

from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.access import ServiceContext
from core.oauth import AuthorizationCode, IssuedCode


class AuthorizationCodesRead(Protocol):
    """Codes that applications exchange for tokens, looked at; they are kept as SHA-256. `service` is whose the code has to be, None for the
    platform's frontend: one of another application is unknown."""

    async def find(self, code_hash: bytes, service: ServiceContext | None) -> IssuedCode | None:
        """Whose this code is, whatever became of it."""
        ...


class AuthorizationCodes(AuthorizationCodesRead, Protocol):
    """The same, changed. The account is locked before."""

    async def add(self, code: AuthorizationCode, code_hash: bytes) -> bool:
        """Add it, unless its service is gone; whether it was added."""
        ...

    async def redeem(
        self,
        code_hash: bytes,
        service: ServiceContext | None,
        redirect_uri: str | None,
        challenge: str | None,
        session_id: UUID,
        now: datetime,
        *,
        registered: bool,
    ) -> bool:
        """Use the code up for this session, if it has not expired or been used, if the session of the browser lives that it was given to,
        and if redirect URI and challenge are those that it was given for; whether it was. Atomic.

        Where it was given for a redirect URI that nobody named, one may be named still that is `registered`.
        """
        ...

    async def given(self, code_hash: bytes, service: ServiceContext | None) -> UUID | None:
        """The session that this code was used for."""
        ...
