"""Sign-in by email: entities, refusals and the format of codes."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from core.kernel.errors import Invalid, NotFound, Unauthenticated
from core.kernel.providers import OwnMethod

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from core.accounts.model.devices import Location
    from core.kernel.policy import Policy
    from core.kernel.values import Email

EMAIL: Final = OwnMethod.EMAIL.value
# After this many wrong codes, only the link of the email still works.
MAX_EMAIL_CODE_ATTEMPTS: Final = 5
_LINK_CHARACTERS: Final = re.compile("[.:@/\\\\]")
_CODE: Final = re.compile("[0-9]{6}")


class EmailSignInOff(NotFound):
    """Signing in by email is off here. Sign in another way."""


class EmailCodeMalformed(Invalid):
    """This is not a code. Enter the 6 digits from the email."""


class EmailCodeWrong(Unauthenticated):
    """This code is wrong. Enter the 6 digits from the newest email."""


class EmailSignInEnded(Unauthenticated):
    """This code can no longer be used: it has expired, was already used, or there were too many wrong codes. Request a new email."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmailSignIn:
    """A request to sign in by email. The address may have no account. Times are UTC."""

    id: UUID  # also the id of the email
    in_browser: bool  # our own pages sent the request, not an API client
    email: Email
    org_id: UUID | None  # the organization of the service
    service_id: UUID | None  # None for the platform itself
    after: str  # the path where the browser continues
    saml_state: str | None = field(repr=False)  # of the SAML sign-on that an API client completes
    address: str | None
    agent: str | None
    location: Location | None
    created_at: datetime
    expires_at: datetime
    user_id: UUID | None = None  # None until the email is prepared, and for an address without an account


@dataclass(frozen=True, slots=True)
class RequestedEmailSignIn:
    """The secret that only the client that asked gets. It is needed to use the code. `expires_in` is in whole seconds."""

    secret: str = field(repr=False)
    expires_in: int


@dataclass(frozen=True, slots=True)
class EmailCodeAttempt:
    """A counted attempt at the code of an email."""

    sign_in: EmailSignIn
    code: str | None = field(repr=False)  # None until the email is prepared
    subject: bytes  # the key of the counter
    blocked_until: datetime | None  # UTC; set if the attempt must be refused without a check


@dataclass(frozen=True, slots=True)
class EmailSignInOrigin:
    """The browser, place and time of a request to sign in by email, for the user to recognize."""

    browser: str
    location: str | None
    address: str | None
    at: datetime  # UTC


@dataclass(frozen=True, slots=True)
class IssuedEmailSignIn:
    """The contents of an email with a link and a code. The link's token is in the queued email."""

    code: str = field(repr=False)
    service_name: str | None  # None for the platform itself
    origin: EmailSignInOrigin


def is_on(policy: Policy, choice: bool | None) -> bool:
    """Return whether a service with this choice, or the platform if it is None, offers sign-in by email."""
    return policy.email_sign_in if choice is None else choice


def safe_browser_name(name: str) -> str:
    """Return the name, or a placeholder if email programs could make a link of it. A stranger can send any name."""
    return "an unknown browser" if _LINK_CHARACTERS.search(name) else name


def new_code() -> str:
    """Return six random digits."""
    return f"{secrets.randbelow(10**6):06}"


def normalize_code(text: str) -> str:
    """Return the code without the spaces that users and clipboards add. Raises: EmailCodeMalformed."""
    code = text.replace(" ", "")
    if not _CODE.fullmatch(code):
        raise EmailCodeMalformed
    return code
