"""What is asked of storage about sessions."""

from collections.abc import Collection
from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.access import BrowserSession, Standing
from core.sessions import SOMEBODY, LiveSession, LiveSessions, Presented, Presenter, Refreshed, Session
from core.values import Listed


class SessionsRead(Protocol):
    async def standing(self, session_id: UUID, user_id: UUID, org_id: UUID | None, now: datetime) -> Standing | None:
        """Everything an authenticated request is judged by, or None unless session and account are live.

        A session of an impersonator lives only while that person is a platform owner whose own session, in which it was begun, lives,
        and while the impersonated one is no platform owner (I-3).
        """
        ...

    async def standing_in(self, slug: str, session_id: UUID, user_id: UUID, org_id: UUID | None, now: datetime) -> Standing | None:
        """The same, with the organization of that slug, and what the person is in it, as `acts_in`."""
        ...

    async def standing_with(self, client_id: UUID, session_id: UUID, user_id: UUID, now: datetime) -> Standing | None:
        """The same for a session of an application: its service, which has this client id and is there, and whether the person uses it."""
        ...

    async def standing_of_browser(self, browser_hash: bytes, now: datetime) -> tuple[BrowserSession, Standing] | None:
        """The live session that a cookie with this hash stands for, and what `standing` would say of it without an organization."""
        ...

    async def beginning(self, session_id: UUID, user_id: UUID) -> tuple[datetime, UUID | None] | None:
        """When this session of the person began, and on which device, if that is known."""
        ...

    async def live_of(self, user_id: UUID, limit: int, now: datetime) -> Listed[LiveSession]:
        """The person's live sessions, with those of applications and of impersonators, the newest first."""
        ...

    async def live_in(self, org_id: UUID, user_id: UUID, now: datetime) -> LiveSessions:
        """What `Sessions.end_in` would end."""
        ...


class Sessions(SessionsRead, Protocol):
    """Sessions and their refresh tokens, which are kept as SHA-256."""

    async def begin(self, session: Session, refresh_hash: bytes) -> None: ...

    async def begin_in_browser(self, session: Session, browser_hash: bytes) -> None:
        """A session without tokens, which the cookie with this hash stands for. Its context is no organization and no service."""
        ...

    async def ends_at(self, session_id: UUID, user_id: UUID, now: datetime) -> datetime | None:
        """When this session of the person ends in any case; None if it is not live."""
        ...

    async def presented(self, token_hash: bytes, now: datetime, by: Presenter = SOMEBODY) -> Presented | None:
        """What is known of a refresh token that was not rotated."""
        ...

    async def revoke(self, session_id: UUID | None, refresh_hash: bytes, by: Presenter, now: datetime) -> bool | None:
        """End this session, or that of this refresh token, be it the current one or not, if it is the presenter's to use; whether it is,
        None where there was none that had not ended."""
        ...

    async def end(self, session_id: UUID, now: datetime) -> None:
        """End the session; one that has ended stays as it is."""
        ...

    async def end_in_browser(self, browser_hash: bytes, now: datetime) -> None:
        """End the session that the cookie with this hash stands for, if it lives."""
        ...

    async def end_all(self, user_id: UUID, now: datetime) -> None: ...

    async def end_one(self, user_id: UUID, session_id: UUID, now: datetime) -> bool:
        """End this live session of the person; whether there was one."""
        ...

    async def end_others(self, user_id: UUID, kept: UUID, now: datetime) -> None: ...

    async def miss_mfa(self, user_id: UUID, but: UUID) -> None:
        """The locked account's second factor was switched on in the session `but`: the person's own others miss it from now on."""
        ...

    async def end_impersonations(self, user_id: UUID, now: datetime) -> None:
        """End the sessions in which the person acts as somebody else, or somebody else as the person."""
        ...

    async def end_of_device(self, user_id: UUID, device_id: UUID, now: datetime) -> None:
        """End the person's live sessions on this device."""
        ...

    async def end_in(self, org_id: UUID, user_ids: Collection[UUID], now: datetime) -> int:
        """End the live sessions of these people in this organization, those of its services too; how many they were (security.md S-4).

        Codes that its applications have not exchanged yet, and devices that wait to be let in, get none any more; who has signed in for a
        sign-on with SAML there, and has not gone on to it, does so again.
        """
        ...

    async def remove(self, user_id: UUID, service_id: UUID | None = None) -> None:
        """Remove the sessions of a locked account, or those of this service, with all that is known of their refresh tokens, and the codes
        that could still be exchanged for one.

        A few statements, the first of them until there is nothing more for it to do.
        """
        ...

    async def select(self, session_id: UUID, org_id: UUID, new_hash: bytes, now: datetime, expires_at: datetime) -> datetime | None:
        """Give the live session this organization as its context and another refresh token, and rotate the current one out.

        It then lives until `expires_at`, but never past its absolute end, which is returned; None if it is not live any more, or if its
        refresh token was rotated at this very moment.
        """
        ...


class Rotation(Protocol):
    async def rotate(
        self, old_hash: bytes, new_hash: bytes, now: datetime, expires_at: datetime, by: Presenter = SOMEBODY
    ) -> Refreshed | None:
        """Replace a refresh token, if it is the current one of a live session whose person and organization are in good standing, and the
        presenter's to use.

        The session then lives until `expires_at`, but never past its absolute end. Exactly one caller wins.
        """
        ...
