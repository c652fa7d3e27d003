"""What is asked of storage about single logout (SAML)."""

from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.saml_logout import Logout, Participation


class SamlLogouts(Protocol):
    """Where sessions of browsers have signed people in to; and logouts under way, which last until they expire, whatever becomes of the
    services and of the account."""

    async def participations(self, session_id: UUID) -> list[Participation]:
        """Where a browser's session has signed somebody in to, the first service first."""
        ...

    async def end_participations(self, session_id: UUID) -> None: ...

    async def keep_participations(self, browser_hash: bytes, now_in: UUID) -> None:
        """What was the session's that the cookie with this hash stands for, live or not, is this one's now, if both are one person's."""
        ...

    async def begin(self, logout: Logout) -> bool:
        """Keep it, unless the service that asks is not there any more; whether it was kept."""
        ...

    async def lock(self, browser_hash: bytes, now: datetime) -> Logout | None:
        """The logout under way in the browser with this cookie, locked until the transaction ends."""
        ...

    async def hand_over(self, logout: Logout) -> None:
        """It has another asker, and expires at another time."""
        ...

    async def mark_partial(self, logout_id: UUID) -> None: ...

    async def add_request(self, logout_id: UUID, request_id: str, user_id: UUID, to: Participation, done_at: datetime | None) -> bool:
        """Have that service told of this person, or keep that it has signed them out already; False where it is not there any more."""
        ...

    async def concerned(self, logout_id: UUID) -> list[Participation]:
        """Whom it is about: all that were told, or will be, or need not be."""
        ...

    async def set_done(self, logout_id: UUID, part: Participation, now: datetime) -> None:
        """The service has ended that session itself, so it is not told of it, and no answer is waited for."""
        ...

    async def next_request(self, logout_id: UUID, now: datetime) -> tuple[str, Participation] | None:
        """The next one to send, with its id: each comes once, and once more while it is not answered, before the others."""
        ...

    async def last_request(self, logout_id: UUID) -> tuple[str, Participation] | None:
        """The one that was sent last, unless it was answered."""
        ...

    async def take_answer(
        self, browser_hash: bytes, org_id: UUID, service_id: UUID, request_id: str, now: datetime, *, is_success: bool
    ) -> bool:
        """What the service says to a request that was sent with this browser; False where there is none that waits."""
        ...

    async def has_answered(self, logout_id: UUID, org_id: UUID, service_id: UUID, request_id: str) -> bool:
        """Whether this request was sent to the service for this logout, and is done."""
        ...

    async def end(self, logout_id: UUID) -> bool:
        """Forget it; whether not everybody said that it was done, or could be told."""
        ...
