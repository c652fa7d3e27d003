"""Entities, refusals and pure rules of `core.federation.saml.messages`."""

from __future__ import annotations

import base64
import binascii
import operator
import secrets
import zlib
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from core.federation.saml.configuration_rules import NameIdFormat
from core.kernel.errors import Invalid
from core.kernel.values import is_printable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    pass

MAX_ENCODED_LENGTH: Final = 64 * 1024  # base64
MAX_DOCUMENT_LENGTH: Final = 256 * 1024
MAX_RELAY_STATE: Final = 1024  # bytes
MAX_AGE: Final = timedelta(minutes=5)
HTTP_POST: Final = "urn:oasis:names:tc:SAML:2.0:bindings:HTTP-POST"
MAX_NAME_ID_LENGTH: Final = 256  # SAML core, sections 8.3.7 and 8.3.8; addresses and our own ids are shorter
# How somebody signed in, as far as we can say it, the weakest first (SAML authentication context, section 3.4): a password over TLS is a
# password, too, and whatever somebody did is something unspecified.
UNSPECIFIED_CONTEXT: Final = "urn:oasis:names:tc:SAML:2.0:ac:classes:unspecified"
PASSWORD_CONTEXT: Final = "urn:oasis:names:tc:SAML:2.0:ac:classes:PasswordProtectedTransport"  # noqa: S105
CONTEXT_CLASSES: Final = (UNSPECIFIED_CONTEXT, "urn:oasis:names:tc:SAML:2.0:ac:classes:Password", PASSWORD_CONTEXT)


class SamlMessageInvalid(Invalid):
    """The application sent a SAML message that cannot be used. Tell those who run the application."""


class SamlMessageTooLong(SamlMessageInvalid):
    """The application sent a SAML message that is too long to sign anybody out with. Tell those who run the application."""


class RelayStateInvalid(SamlMessageInvalid):
    """The application sent a RelayState that is too long, or holds control characters: 1024 bytes at most. Tell those who run it."""


class SamlMessageExpired(SamlMessageInvalid):
    """This SAML message is too old, or from the future. Start again at the application, and if it still fails, have its clock looked at."""


class DestinationMismatch(SamlMessageInvalid):
    """This SAML message is not for this address. Tell those who run the application."""


class IssuerMismatch(SamlMessageInvalid):
    """This SAML message is not from the application that is registered here. Its entity id must be the registered one."""


class AcsUrlMismatch(SamlMessageInvalid):
    """The application asks for an answer at an address that is not registered for it. Nothing was sent there."""


class BindingUnsupported(SamlMessageInvalid):
    """The application asks for an answer by a binding that there is not. Answers go by HTTP-POST."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamlMessage:
    """What every message has. `issue_instant` is UTC, `destination` where it was sent to, if it says so."""

    id: str
    issue_instant: datetime
    destination: str | None
    issuer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedNameId:
    """A NameID as a service writes it, None for what it leaves out (SAML core, section 2.2.3). Without a value it is a name that we cannot
    read, being of another kind, or encrypted."""

    value: str = ""
    format: str | None = None
    name_qualifier: str | None = None
    sp_name_qualifier: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NameIdPolicy:
    """How a service wants people to be named (SAML core, section 3.4.1.1)."""

    format: str | None
    sp_name_qualifier: str | None


class ContextComparison(StrEnum):
    """How what is said of a sign-in has to compare with what was asked for (SAML core, section 3.3.2.2.1)."""

    EXACT = "exact"
    MINIMUM = "minimum"
    MAXIMUM = "maximum"
    BETTER = "better"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedContext:
    """How a service wants people to sign in: as one of these classes says, of which it likes the first best."""

    comparison: ContextComparison
    classes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthnRequest(SamlMessage):
    """A service asks to have somebody signed in; a certain person, if there is a `subject`. It may be signed, which means nothing here."""

    acs_url: str | None
    binding: str | None
    force_authn: bool
    is_passive: bool
    policy: NameIdPolicy | None = None
    subject: ReceivedNameId | None = None
    context: RequestedContext | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogoutRequest(SamlMessage):
    """A service wants to have somebody signed out, everywhere, in the sessions of these indexes."""

    name_id: ReceivedNameId
    session_indexes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogoutResponse(SamlMessage):
    """What a service says to a request of ours."""

    in_response_to: str
    is_success: bool


IncomingSamlMessage = AuthnRequest | LogoutRequest | LogoutResponse


class SamlStatus(StrEnum):
    """What becomes of a request: the second-level code of SAML core, section 3.2.2.2. Success has none, and is not named."""

    INVALID_NAME_ID_POLICY = "urn:oasis:names:tc:SAML:2.0:status:InvalidNameIDPolicy"
    NO_AUTHN_CONTEXT = "urn:oasis:names:tc:SAML:2.0:status:NoAuthnContext"
    NO_PASSIVE = "urn:oasis:names:tc:SAML:2.0:status:NoPassive"
    PARTIAL_LOGOUT = "urn:oasis:names:tc:SAML:2.0:status:PartialLogout"
    UNKNOWN_PRINCIPAL = "urn:oasis:names:tc:SAML:2.0:status:UnknownPrincipal"


@dataclass(frozen=True, slots=True)
class NameId:
    """By what a service knows somebody, and of which format that is."""

    value: str
    format: NameIdFormat

    def means(self, ours: NameId) -> bool:
        """Whether whoever is named like this in a message is known by that. What has no format, or unspecified, leaves it to us to say what
        it means (SAML core, sections 2.2.3 and 8.3.1)."""
        return self.value == ours.value and self.format in (NameIdFormat.UNSPECIFIED, ours.format)


@dataclass(frozen=True, slots=True, kw_only=True)
class SamlAssertion:
    """That somebody is signed in, since `authenticated_at`, in UTC, and how (SAML authentication context). Attributes are by name."""

    id: str
    name_id: NameId
    session_index: str
    authenticated_at: datetime
    context_class: str
    attributes: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SamlResponse:
    """What is posted to a service: an assertion, or why there is none. `in_response_to` is None where the service has not asked."""

    id: str
    in_response_to: str | None
    issued_at: datetime
    assertion: SamlAssertion | None
    status: SamlStatus | None = None


def new_message_id() -> str:
    """An id of a message or an assertion: 160 random bits (SAML core, section 1.3.4)."""
    return f"_{secrets.token_hex(20)}"


def decode_redirect(text: str) -> bytes:
    """The message in a query (SAML bindings, section 3.4.4.1). Raises MessageInvalid."""
    return _inflate(_decode_base64(text))


def _inflate(packed: bytes) -> bytes:
    inflater = zlib.decompressobj(-15)
    try:
        unpacked = inflater.decompress(packed, MAX_DOCUMENT_LENGTH)
    except zlib.error:
        raise SamlMessageInvalid from None
    # What is not at its end is too long, or cut off; and nothing may come behind it.
    if not inflater.eof or inflater.unused_data:
        raise SamlMessageInvalid
    return unpacked


def decode_post(text: str) -> bytes:
    """The message in a form (SAML bindings, section 3.5.4); its lines may be wrapped. Raises MessageInvalid.

    node-saml deflates what it posts as well, unless it is told not to.
    """
    packed = _decode_base64("".join(text.split()) if len(text) <= MAX_ENCODED_LENGTH else text)
    return packed if packed.lstrip()[:1] == b"<" else _inflate(packed)


def _decode_base64(text: str) -> bytes:
    if not 0 < len(text) <= MAX_ENCODED_LENGTH:
        raise SamlMessageInvalid
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise SamlMessageInvalid from None


def encode_redirect(message: bytes) -> str:
    """The message as it stands in a query, before it is quoted."""
    deflater = zlib.compressobj(9, zlib.DEFLATED, -15)
    return base64.b64encode(deflater.compress(message) + deflater.flush()).decode()


def encode_post(message: bytes) -> str:
    return base64.b64encode(message).decode()


def check_relay_state(relay_state: str | None) -> None:
    """Raises RelayStateInvalid."""
    if relay_state is not None and (len(relay_state.encode("utf-8", "surrogatepass")) > MAX_RELAY_STATE or not is_printable(relay_state)):
        raise RelayStateInvalid


_COMPARED: Final[Mapping[ContextComparison, Callable[[int, int], bool]]] = {
    ContextComparison.EXACT: operator.eq,
    ContextComparison.MINIMUM: operator.ge,
    ContextComparison.MAXIMUM: operator.le,
    ContextComparison.BETTER: operator.gt,
}


def choose_context_class(asked: RequestedContext) -> str | None:
    """What to say of somebody who has signed in with a password; None where a service takes nothing that we can say (SAML core, section
    3.3.2.2.1). Of exact matches that is the first in its own order, else the strongest; how strong other classes are, nobody has to know.
    """
    ours = CONTEXT_CLASSES.index
    wanted = [ours(one) for one in asked.classes if one in CONTEXT_CLASSES]
    liked = wanted if asked.comparison is ContextComparison.EXACT else [*reversed(range(len(CONTEXT_CLASSES)))]
    fits = _COMPARED[asked.comparison]
    return next((CONTEXT_CLASSES[mine] for mine in liked if any(fits(mine, one) for one in wanted)), None)
