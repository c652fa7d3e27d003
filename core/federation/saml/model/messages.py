"""SAML messages, their encoding for the HTTP-Redirect and HTTP-POST bindings, and the rules for requests of services.

Sources: SAML 2.0 core and profiles; security X-1 and X-3.

Signatures in messages of services have no meaning here, except in a LogoutRequest of a service with a registered certificate.

Sources: SAML bindings sections 3.4 and 3.5.
"""

from __future__ import annotations

import base64
import binascii
import operator
import re
import secrets
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final
from urllib.parse import unquote_plus

from core.federation.saml.model import configuration
from core.kernel import uris
from core.kernel.errors import Invalid
from core.kernel.values import is_printable

MAX_AGE: Final = timedelta(minutes=5)  # largest difference of IssueInstant from our clock, in both directions
HTTP_POST: Final = "urn:oasis:names:tc:SAML:2.0:bindings:HTTP-POST"
MAX_NAME_ID_LENGTH: Final = 256  # SAML core sections 8.3.7 and 8.3.8; email addresses and our ids are shorter
_ID: Final = re.compile(r"[^\W\d][\w.-]{0,255}")  # the NCNames that occur in practice

# The authentication contexts that we can state, the weakest first (SAML authentication context
# section 3.4). A password over TLS also satisfies Password, and everything satisfies unspecified.
UNSPECIFIED_CONTEXT: Final = "urn:oasis:names:tc:SAML:2.0:ac:classes:unspecified"
PASSWORD_CONTEXT: Final = "urn:oasis:names:tc:SAML:2.0:ac:classes:PasswordProtectedTransport"  # noqa: S105
CONTEXT_CLASSES: Final = (UNSPECIFIED_CONTEXT, "urn:oasis:names:tc:SAML:2.0:ac:classes:Password", PASSWORD_CONTEXT)


class SamlMessageInvalid(Invalid):
    """The application sent a SAML message that is not valid. Tell the application's administrators."""


class SamlMessageMissing(SamlMessageInvalid):
    """This address takes a SAML message, and none was sent. Start again at the application."""


class SamlMessageTooLong(SamlMessageInvalid):
    """The application sent a SAML message that is too long for signing out. Tell the application's administrators."""


class RelayStateInvalid(SamlMessageInvalid):
    """The application sent a RelayState that has control characters or more than 4096 bytes. Tell the application's administrators."""


class SamlMessageExpired(SamlMessageInvalid):
    """This SAML message is too old or from the future. Start again at the application. If it fails again, its clock may be wrong."""


class DestinationMismatch(SamlMessageInvalid):
    """This SAML message is for another address. Tell the application's administrators."""


class IssuerMismatch(SamlMessageInvalid):
    """This SAML message has another issuer than the registered application. Its Issuer must be the registered entity id."""


class AcsUrlMismatch(SamlMessageInvalid):
    """The application requests a response at an unregistered address. No response was sent. Tell the administrators of the application."""


class LogoutSignatureInvalid(SamlMessageInvalid):
    """The application's signature is wrong. It must be RSA with SHA-256 or better, by the key of the registered certificate."""


class BindingUnsupported(SamlMessageInvalid):
    """The application requests a response with an unsupported binding, not HTTP-POST. Tell the administrators of the application."""


@dataclass(frozen=True, slots=True)
class QuerySignature:
    """A signature in the query of a message with HTTP-Redirect (SAML bindings section 3.4.4.1)."""

    signed: bytes  # the signed part of the query, exactly as sent
    algorithm: str
    value: str  # base64


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedDocument:
    """A SAML document received at an endpoint of a service, before it is parsed."""

    org_slug: str
    service_slug: str
    document: bytes
    relay_state: str | None = None
    signature: QuerySignature | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SamlMessage:
    """The part that all received messages have in common."""

    id: str
    issue_instant: datetime  # UTC
    destination: str | None
    issuer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedNameId:
    """A NameID in a message of a service, with None for omitted parts (SAML core section 2.2.3).

    The value is empty for an encrypted identifier and for a BaseID, neither of which we can read.
    """

    value: str = ""
    format: str | None = None
    name_qualifier: str | None = None
    sp_name_qualifier: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NameIdPolicy:
    """The kind of NameID that a service requests (SAML core section 3.4.1.1)."""

    format: str | None
    sp_name_qualifier: str | None


class ContextComparison(StrEnum):
    """The required relation of our authentication context to a requested one (SAML core section 3.3.2.2.1)."""

    EXACT = "exact"
    MINIMUM = "minimum"
    MAXIMUM = "maximum"
    BETTER = "better"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedContext:
    """The authentication contexts that a service requests, in its order of preference."""

    comparison: ContextComparison
    classes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthnRequest(SamlMessage):
    """A service's request to sign a user in, or, with a `subject`, to sign in that user."""

    acs_url: str | None
    binding: str | None
    force_authn: bool
    is_passive: bool
    policy: NameIdPolicy | None = None
    subject: ReceivedNameId | None = None
    context: RequestedContext | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogoutRequest(SamlMessage):
    """A service's request to end a user's sessions with these indexes, and to sign the user out at all other services."""

    name_id: ReceivedNameId
    session_indexes: tuple[str, ...]
    ends_at: datetime | None = None  # UTC


@dataclass(frozen=True, slots=True, kw_only=True)
class LogoutResponse(SamlMessage):
    """A service's response to our LogoutRequest."""

    in_response_to: str
    is_success: bool


IncomingSamlMessage = AuthnRequest | LogoutRequest | LogoutResponse


class SamlStatus(StrEnum):
    """The second-level status code of a response (SAML core section 3.2.2.2). Success has none."""

    INVALID_NAME_ID_POLICY = "urn:oasis:names:tc:SAML:2.0:status:InvalidNameIDPolicy"
    NO_AUTHN_CONTEXT = "urn:oasis:names:tc:SAML:2.0:status:NoAuthnContext"
    NO_PASSIVE = "urn:oasis:names:tc:SAML:2.0:status:NoPassive"
    PARTIAL_LOGOUT = "urn:oasis:names:tc:SAML:2.0:status:PartialLogout"
    UNKNOWN_PRINCIPAL = "urn:oasis:names:tc:SAML:2.0:status:UnknownPrincipal"


@dataclass(frozen=True, slots=True)
class NameId:
    """The name by which a service knows a user."""

    value: str
    format: configuration.NameIdFormat

    def matches(self, known: NameId) -> bool:
        """Return whether this name from a message is `known`, a name that we gave the service.

        The format `unspecified`, or no format, matches every format (SAML core sections 2.2.3 and
        8.3.1).
        """
        return self.value == known.value and self.format in (configuration.NameIdFormat.UNSPECIFIED, known.format)


@dataclass(frozen=True, slots=True, kw_only=True)
class SamlAssertion:
    """The statement that a user is signed in."""

    id: str
    name_id: NameId
    session_index: str
    authenticated_at: datetime  # UTC
    context_class: str
    attributes: tuple[configuration.SamlAttribute, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SamlResponse:
    """A response to a service: an assertion, or the status that explains its absence."""

    id: str
    in_response_to: str | None  # None for a sign-in that the service did not request
    issued_at: datetime
    assertion: SamlAssertion | None
    status: SamlStatus | None = None


def new_message_id() -> str:
    """Return a new message or assertion id: 160 random bits (SAML core section 1.3.4)."""
    return f"_{secrets.token_hex(20)}"


# Checks


def check_message(message: SamlMessage, provider: configuration.SamlIdentityProvider, endpoint: str, now: datetime) -> None:
    """Check that the registered service sent this message to this endpoint, a short time ago."""
    if not _ID.fullmatch(message.id):
        raise SamlMessageInvalid
    if message.issuer != provider.entity_id:
        raise IssuerMismatch
    if message.destination is not None and uris.canonicalize(message.destination) != uris.canonicalize(endpoint):
        raise DestinationMismatch
    if abs(message.issue_instant - now) > MAX_AGE:
        raise SamlMessageExpired


def check_authn_request(request: AuthnRequest, provider: configuration.SamlIdentityProvider, endpoint: str, now: datetime) -> None:
    """Check an AuthnRequest. A request that fails gets no SAML response at all (security X-3)."""
    check_message(request, provider, endpoint, now)
    if request.acs_url is not None and uris.canonicalize(request.acs_url) != uris.canonicalize(provider.acs_url):
        raise AcsUrlMismatch
    if request.binding is not None and request.binding != HTTP_POST:
        raise BindingUnsupported


# Requested options


def refusal_status(request: AuthnRequest, provider: configuration.SamlIdentityProvider, issuer: str) -> SamlStatus | None:
    """Return the status that refuses this request for every user, or None if a user can get an assertion.

    `issuer` is our entity id.

    The service's configuration decides the format of names. A NameIDPolicy with another format,
    which includes the encrypted one, or with another service's qualifier is refused (SAML core
    section 3.4.1.1).
    """
    policy = request.policy
    if policy is not None:
        if (policy.format or configuration.NameIdFormat.UNSPECIFIED) not in (
            configuration.NameIdFormat.UNSPECIFIED,
            provider.name_id_format,
        ):
            return SamlStatus.INVALID_NAME_ID_POLICY
        if (policy.sp_name_qualifier or provider.entity_id) != provider.entity_id:
            return SamlStatus.INVALID_NAME_ID_POLICY
    if request.subject is not None and resolve_name_id(request.subject, provider, issuer) is None:
        return SamlStatus.UNKNOWN_PRINCIPAL
    if request.context is not None and choose_context_class(request.context) is None:
        return SamlStatus.NO_AUTHN_CONTEXT
    return None


def resolve_name_id(received: ReceivedNameId, provider: configuration.SamlIdentityProvider, issuer: str) -> NameId | None:
    """Return the name that a service sent, or None if we cannot have given this name to the service. `issuer` is our entity id."""
    format_ = next(
        (known for known in configuration.NameIdFormat if known == (received.format or configuration.NameIdFormat.UNSPECIFIED)), None
    )
    if format_ is None or not 0 < len(received.value) <= MAX_NAME_ID_LENGTH:
        return None
    if (received.name_qualifier or issuer) != issuer or (received.sp_name_qualifier or provider.entity_id) != provider.entity_id:
        return None
    return NameId(received.value, format_)


_COMPARISONS: Final[Mapping[ContextComparison, Callable[[int, int], bool]]] = {
    ContextComparison.EXACT: operator.eq,
    ContextComparison.MINIMUM: operator.ge,
    ContextComparison.MAXIMUM: operator.le,
    ContextComparison.BETTER: operator.gt,
}


def choose_context_class(requested: RequestedContext) -> str | None:
    """Return the context class to state for a sign-in with a password, or None.

    None means that the service accepts none of the classes that we can state.

    For `exact` it is the first match in the service's order, otherwise our strongest match (SAML
    core section 3.3.2.2.1). Classes that we do not know are ignored.
    """
    strength = CONTEXT_CLASSES.index
    references = [strength(class_) for class_ in requested.classes if class_ in CONTEXT_CLASSES]
    candidates = references if requested.comparison is ContextComparison.EXACT else [*reversed(range(len(CONTEXT_CLASSES)))]
    fits = _COMPARISONS[requested.comparison]
    return next((CONTEXT_CLASSES[index] for index in candidates if any(fits(index, reference) for reference in references)), None)


MAX_ENCODED_LENGTH: Final = 64 * 1024  # characters of base64
MAX_DOCUMENT_LENGTH: Final = 256 * 1024
MAX_RELAY_STATE: Final = 4096  # bytes; products put a whole return address into it


def decode_redirect(text: str) -> bytes:
    """Return the message in a query field (SAML bindings section 3.4.4.1)."""
    return _inflate(_decode_base64(text))


def _inflate(deflated: bytes) -> bytes:
    inflater = zlib.decompressobj(-15)
    try:
        document = inflater.decompress(deflated, MAX_DOCUMENT_LENGTH)
    except zlib.error:
        raise SamlMessageInvalid from None
    # Without `eof` the message is too long or truncated. Data after its end is refused.
    if not inflater.eof or inflater.unused_data:
        raise SamlMessageInvalid
    return document


def query_signature(query: str) -> QuerySignature | None:
    """Return the signature in this raw query, or None (SAML bindings section 3.4.4.1).

    `query` has one character for each byte (Latin-1), because the signature is about the bytes.
    """
    parts: dict[str, str] = {}
    for part in query.split("&"):
        parts.setdefault(unquote_plus(part.partition("=")[0]), part)
    if "Signature" not in parts:
        return None
    signed = [parts[name] for name in ("SAMLRequest", "SAMLResponse", "RelayState", "SigAlg") if name in parts]
    algorithm, value = (unquote_plus(parts.get(name, "").partition("=")[2]) for name in ("SigAlg", "Signature"))
    return QuerySignature("&".join(signed).encode("latin-1"), algorithm, value)


def decode_post(text: str) -> bytes:
    """Return the message in a form field, which may have line breaks (SAML bindings section 3.5.4).

    A deflated message is accepted too: node-saml sends these by default.
    """
    document = _decode_base64("".join(text.split()) if len(text) <= MAX_ENCODED_LENGTH else text)
    return document if document.lstrip()[:1] == b"<" else _inflate(document)


def _decode_base64(text: str) -> bytes:
    if not text:
        raise SamlMessageMissing
    if len(text) > MAX_ENCODED_LENGTH:
        raise SamlMessageInvalid
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise SamlMessageInvalid from None


def encode_redirect(message: bytes) -> str:
    """Return the message as a query value, before URL quoting."""
    deflater = zlib.compressobj(9, zlib.DEFLATED, -15)
    return base64.b64encode(deflater.compress(message) + deflater.flush()).decode()


def encode_post(message: bytes) -> str:
    return base64.b64encode(message).decode()


def check_relay_state(relay_state: str | None) -> None:
    """Check the length and the characters of a RelayState (security X-10)."""
    if relay_state is None:
        return
    if len(relay_state.encode("utf-8", "surrogatepass")) > MAX_RELAY_STATE or not is_printable(relay_state):
        raise RelayStateInvalid
