"""Sign-in through identity providers, and its preview."""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Final

from core.authentication.model.openid import Scope
from core.federation.saml.model import configuration
from core.kernel import errors
from core.kernel.values import base64url

STATE_TTL: Final = timedelta(minutes=15)
MAX_STATE_LENGTH: Final = 100  # characters; our own states are shorter


class ProviderStateUnknown(errors.Invalid):
    """This sign-in has expired or was already used, or it was started in another browser. Start again."""


class LinkTicketInvalid(errors.Invalid):
    """This link has expired or was already used. Start linking the account again."""


class BrowserSignInNeeded(errors.Unauthenticated):
    """Sign in in this browser first, to show that it is yours."""


class LinkOfAnotherBrowser(errors.Forbidden):
    """This link works only in the browser in which it was started. Open it there, or start again here."""


class SignedInAsAnotherUser(errors.Forbidden):
    """Another user is signed in in this browser. Sign out first, or continue in your own browser."""


class ProviderConsentDenied(errors.Invalid):
    """The identity provider did not get permission to share your identity. Try again and allow it, or choose another way."""


class ProviderAnswerInvalid(errors.Invalid):
    """This response did not come from the identity provider. Start the sign-in again."""


class ProviderEmailMissing(errors.Invalid):
    """The identity provider did not share an email address that can be used here. Add one there, or use another way to sign in."""


class ProviderEmailTaken(errors.Conflict):
    """An account with this email address already exists. Sign in to it as before, and link the identity provider there."""


class IdentityLinkedToAnother(errors.Conflict):
    """This account at the identity provider is already linked to another user. Link another account, or unlink this one there first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderAnswer:
    """The parameters that an identity provider sends back with the state. Sources: RFC 6749 section 4.1.2, RFC 9207."""

    code: str | None = field(repr=False)
    error: str | None
    issuer: str | None


def derive_secret(purpose: str, state: str, device_cookie: str) -> str:
    """Return the nonce or the code verifier of a request, which is the same before the redirect and after it.

    The database stores only hashes of the state and the cookie, so a reader of the database cannot
    compute it. Another browser has another cookie, so its request does not match.
    """
    return base64url(hmac.digest(device_cookie.encode(), f"{purpose} {state}".encode(), "sha256"))


class PreviewOutcome(StrEnum):
    """The next step of a sign-in."""

    SIGNED_IN = "signed_in"  # at once
    CONSENT = "consent"  # the user is asked first
    SIGN_IN = "sign_in"  # the user must sign in again, for example with the second factor
    ENROLL = "enroll"  # the user must first set up a factor that a sign-in policy asks for
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class OpenIdPreview:
    """The result with OAuth. The claims are None without the scope `openid`, and if the user could not be signed in now."""

    outcome: PreviewOutcome
    redirect_uri: str
    error: str | None = None  # the error code of OAuth
    message: str | None = None
    scope: tuple[Scope, ...] = ()
    id_token: Mapping[str, object] | None = None
    userinfo: Mapping[str, object] | None = None
    access_token: Mapping[str, object] | None = None  # the claims about the user only


@dataclass(frozen=True, slots=True)
class SamlPreview:
    """The result with SAML. `name_id` is None if the sign-on itself would create it."""

    outcome: PreviewOutcome
    entity_id: str  # of the service
    name_id_format: configuration.NameIdFormat
    error: str | None = None
    message: str | None = None
    name_id: str | None = None
    attributes: tuple[configuration.SamlAttribute, ...] = ()


@dataclass(frozen=True, slots=True)
class SignInPreview:
    """The results of both protocols. None where the application does not use it."""

    openid: OpenIdPreview | None
    saml: SamlPreview | None


@dataclass(frozen=True, slots=True)
class SignedInAgain:
    """The user of a session signed in again, and continues at `next_path`."""

    next_path: str
