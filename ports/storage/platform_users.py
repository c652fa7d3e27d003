"""What is asked of storage about people, for platform owners."""

from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.platform_users import Alert, FoundPerson, MfaFigures, MfaStanding


class PlatformUsersRead(Protocol):
    """People of every organization and of none, as platform owners see them."""

    async def search(self, limit: int, *, email: str | None = None, user_id: UUID | None = None) -> list[FoundPerson]:
        """Those whose address has `email` in it, which is in lower case, and who have this id, where these are given; the newest first."""
        ...

    async def mfa_status(self, user_id: UUID) -> MfaStanding | None: ...

    async def mfa_figures(self, since: datetime) -> MfaFigures:
        """What happened is counted since then."""
        ...

    async def alerts(self, since: datetime, limit: int) -> list[Alert]:
        """What is suspicious in the log of the second factor since then, the newest first."""
        ...
