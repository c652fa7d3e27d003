"""Entities, refusals and pure rules of `core.federation.upstream.social`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from core.kernel.errors import Conflict, Forbidden, Invalid

if TYPE_CHECKING:
    from uuid import UUID

    from core.kernel.providers import Provider

STATE_TTL: Final = timedelta(minutes=15)  # identity.md section 5, rule 3
MAX_STATE_LENGTH: Final = 100  # characters; ours are shorter
ACCOUNT_PATH: Final = "/app/account"
IDENTITIES_PATH: Final = "/app/account/identities"


class ProviderStateUnknown(Invalid):
    """This sign-in was not begun in this browser, has expired, or was used before. Start again."""


class LinkTicketInvalid(Invalid):
    """This address is good for a minute, and once. Start to link the account again."""


class SignedInAsAnotherUser(Forbidden):
    """Somebody else is signed in in this browser. Sign out first, or finish this in your own browser."""


class ProviderConsentDenied(Invalid):
    """The identity provider was not allowed to tell us who you are. Sign in again and agree to it, or sign in in another way."""


class ProviderAnswerInvalid(Invalid):
    """This is no answer of the identity provider that you were sent to. Start again at the beginning."""


class ProviderEmailMissing(Invalid):
    """The identity provider has told us no email address of yours that can be used here. Show it one, or sign in in another way."""


class ProviderEmailTaken(Conflict):
    """There is an account with your address already. Sign in to it in the way that you used before, and link the provider there."""


class IdentityLinkedToAnother(Conflict):
    """This account at the identity provider belongs to somebody else here. It cannot be linked twice."""


@dataclass(frozen=True, slots=True)
class ProviderState:
    """A browser that was sent to a provider: for a service, or the platform itself; with `user_id` to link an account in this session, and
    else to sign in. `scopes` are what the service asks for, None where it leaves that to the platform; `after` is where it goes on, a path
    of ours. State and browser are kept as SHA-256. Times are UTC.
    """

    state_hash: bytes
    browser_hash: bytes
    provider: Provider
    org_id: UUID | None
    service_id: UUID | None
    user_id: UUID | None
    session_id: UUID | None
    scopes: tuple[str, ...] | None
    after: str
    created_at: datetime
    expires_at: datetime
