"""Entities, refusals and pure rules of `core.federation.saml.logout`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from core.kernel.errors import Invalid

if TYPE_CHECKING:
    from uuid import UUID

    from core.federation.saml.messages import NameId

LOGOUT_TTL: Final = timedelta(minutes=15)
MAX_SESSION_INDEXES: Final = 100  # in one request; a browser has one at a service


class SloUrlMissing(Invalid):
    """This application has no address registered to which its users could be sent back after signing out. Nobody was signed out."""


class LogoutNotFound(Invalid):
    """There is no sign-out under way in this browser, or it took too long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamlSession:
    """That a browser's session has signed somebody in to a service, and as whom; by what names before that."""

    org_id: UUID
    service_id: UUID
    session_index: str
    name_id: NameId
    former_names: tuple[str, ...] = ()

    @property
    def names(self) -> list[NameId]:
        """All that the service may know them by."""
        return [self.name_id, *(replace(self.name_id, value=name) for name in self.former_names)]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogoutInitiator:
    """Who is to hear how a logout ends: a service, and to which request of its own; or our own page, which goes on in `after`."""

    org_id: UUID | None = None
    service_id: UUID | None = None
    request_id: str | None = None
    relay_state: str | None = None
    after: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SamlLogout:
    """A logout under way. Times are UTC."""

    id: UUID
    browser_hash: bytes
    asker: LogoutInitiator
    created_at: datetime
    expires_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class LogoutCookies:
    """What a browser shows: the secret by which a logout under way knows it again, and that of its session.

    They are the same one where the logout ended that session, which makes the secret worthless otherwise. So a browser that was sent here
    several times at once, as by a double click, is known again although it did not take the answer that ended the session.
    """

    logout: str | None = field(repr=False)
    session: str | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class Redirect:
    """Where the browser goes next, to come back with this secret; with None nothing is under way in it any more."""

    address: str
    secret: str | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class NoMatchingSession:
    """Where the browser takes the answer that a service has meant nobody here; what is under way in it stays as it is."""

    address: str


@dataclass(frozen=True, slots=True)
class LogoutFinished:
    """It is over, and no service waits to hear it: `after` is where our own page goes on. `is_partial` says that the person may still be
    signed in somewhere."""

    is_partial: bool
    after: str | None


@dataclass(frozen=True, slots=True)
class LogoutStarted:
    """A logout that has begun: the path on which the browser goes on, and the secret that it must have there."""

    path: str
    secret: str = field(repr=False)
