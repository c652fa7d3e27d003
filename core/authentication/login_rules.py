"""Entities, refusals and pure rules of `core.authentication.login`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from core.accounts.devices_rules import Client
from core.kernel.errors import Invalid, NotFound, OrganizationNotActive, Unauthenticated
from core.kernel.principals import DirectoryForbids

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from core.accounts.accounts_rules import Account
    from core.accounts.attempt_limits_rules import Secret
    from core.accounts.mfa_rules import Enrolment
    from core.authentication.identities_rules import Unlinked
    from core.authentication.sessions_rules import Session
    from core.billing.subscriptions_rules import Entitlement
    from core.kernel.principals import ServiceContext
    from core.kernel.values import Email

# How many wrong codes end a pre-auth token (security.md J-8).
TRIES = 5
PASSWORD = "password"  # what the records call this way to sign in  # noqa: S105
NOBODYS_DEVICE = Client()


class CredentialsInvalid(Unauthenticated):
    """The e-mail address or the password is wrong."""


class EmailNotVerified(Unauthenticated):
    """The e-mail address is not verified yet. Follow the link in the mail, or ask for a new one."""


class AccountClosed(Unauthenticated):
    """This account is closed: nobody can sign in to it."""


class NeedsCodeFlow(Invalid):
    """People sign in to a mobile or desktop application in the browser, with PKCE, and not by handing it their password."""


class PreAuthInvalid(Unauthenticated):
    """This sign-in cannot be continued: it has expired, was used, or took too many wrong codes. Sign in again."""

    token_sent = True


# What service_to_sign_in_to raises.
SERVICE_CLOSED = (NotFound, OrganizationNotActive, NeedsCodeFlow, DirectoryForbids)


@dataclass(frozen=True, slots=True)
class Pending:
    """A sign-in whose first factor was right, and which waits for the second. With it waits what is to be linked by it. Times are UTC."""

    id: UUID
    user_id: UUID
    service_id: UUID | None
    provider: str
    created_at: datetime
    expires_at: datetime
    unlinked: Unlinked | None = None


@dataclass(frozen=True, slots=True)
class Try:
    """A try at the second factor of a sign-in that waits: whose, what the code is compared with, and until when it must wait, in UTC."""

    pending: Pending
    account: Account
    enrolment: Enrolment | None
    blocked_until: datetime | None


@dataclass(frozen=True, slots=True)
class Guess:
    """A guess at somebody's password: at whose, if anybody's, by what it was counted, and until when it must wait instead, in UTC."""

    account: Account | None
    secret: Secret
    subject: bytes
    blocked_until: datetime | None


@dataclass(frozen=True, slots=True)
class PreAuth:
    """What to continue a sign-in with that waits for the second factor; `expires_in` is in whole seconds."""

    token: str = field(repr=False)
    expires_in: int


@dataclass(frozen=True, slots=True)
class SignedIn:
    """A session that has begun. `secret` is its first refresh token, or its cookie if it is a browser's on our own pages; `device_token`
    lets its device do without the second factor for a while."""

    session: Session
    email: Email
    email_verified: bool
    entitlement: Entitlement
    secret: str = field(repr=False)
    device_token: str | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class Way:
    """How somebody signs in: through what, to what, and whether in a browser on our own pages."""

    provider: str
    service: ServiceContext | None
    in_browser: bool
