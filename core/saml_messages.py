"""What services and their identity provider say to each other (SAML core, bindings and profiles): the values, how they are packed, and what
of a request is believed (security.md X-1, X-3, X-10)."""

from __future__ import annotations

import base64
import binascii
import re
import secrets
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from core.errors import Invalid
from core.values import is_plain

if TYPE_CHECKING:
    from core.saml import IdentityProvider, NameIdFormat

MAX_PACKED: Final = 64 * 1024  # base64
MAX_UNPACKED: Final = 256 * 1024
MAX_RELAY_STATE: Final = 1024  # bytes
FRESH: Final = timedelta(minutes=5)
HTTP_POST: Final = "urn:oasis:names:tc:SAML:2.0:bindings:HTTP-POST"
_ID: Final = re.compile(r"[^\W\d][\w.-]{0,255}")  # an NCName, as far as anybody makes them


class MessageInvalid(Invalid):
    """The application sent a SAML message that cannot be used. Tell those who run the application."""


class RelayStateInvalid(MessageInvalid):
    """The application sent a RelayState that is too long, or holds control characters: 1024 bytes at most. Tell those who run it."""


class MessageStale(MessageInvalid):
    """This SAML message is too old, or from the future. Start again at the application, and if it still fails, have its clock looked at."""


class MessageElsewhere(MessageInvalid):
    """This SAML message is not for this address. Tell those who run the application."""


class IssuerUnknown(MessageInvalid):
    """This SAML message is not from the application that is registered here. Its entity id must be the registered one."""


class AcsUrlUnknown(MessageInvalid):
    """The application asks for an answer at an address that is not registered for it. Nothing was sent there."""


class BindingUnsupported(MessageInvalid):
    """The application asks for an answer by a binding that there is not. Answers go by HTTP-POST."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What every message has. `issue_instant` is UTC, `destination` where it was sent to, if it says so."""

    id: str
    issue_instant: datetime
    destination: str | None
    issuer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthnRequest(Said):
    """A service asks to have somebody signed in. It may be signed, which means nothing here."""

    acs_url: str | None
    binding: str | None
    force_authn: bool
    is_passive: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LogoutRequest(Said):
    """A service wants to have somebody signed out, everywhere, in the sessions of these indexes."""

    name_id: str
    session_indexes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogoutResponse(Said):
    """What a service says to a request of ours."""

    in_response_to: str
    is_success: bool


Message = AuthnRequest | LogoutRequest | LogoutResponse


class Status(StrEnum):
    """What becomes of a request: the second-level code of SAML core, section 3.2.2.2. Success has none, and is not named."""

    NO_PASSIVE = "urn:oasis:names:tc:SAML:2.0:status:NoPassive"
    PARTIAL_LOGOUT = "urn:oasis:names:tc:SAML:2.0:status:PartialLogout"
    UNKNOWN_PRINCIPAL = "urn:oasis:names:tc:SAML:2.0:status:UnknownPrincipal"


@dataclass(frozen=True, slots=True)
class NameId:
    """By what a service knows somebody, and of which format that is."""

    value: str
    format: NameIdFormat


@dataclass(frozen=True, slots=True, kw_only=True)
class Assertion:
    """That somebody is signed in, since `authenticated_at`, in UTC, and how (SAML authentication context). Attributes are by name."""

    id: str
    name_id: NameId
    session_index: str
    authenticated_at: datetime
    context_class: str
    attributes: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """What is posted to a service: an assertion, or why there is none. `in_response_to` is None where the service has not asked."""

    id: str
    in_response_to: str | None
    issued_at: datetime
    assertion: Assertion | None
    status: Status | None = None


def new_id() -> str:
    """An id of a message or an assertion: 160 random bits (SAML core, section 1.3.4)."""
    return f"_{secrets.token_hex(20)}"


def unpacked_from_redirect(text: str) -> bytes:
    """The message in a query (SAML bindings, section 3.4.4.1). Raises MessageInvalid."""
    return _inflated(_decoded(text))


def _inflated(packed: bytes) -> bytes:
    inflater = zlib.decompressobj(-15)
    try:
        unpacked = inflater.decompress(packed, MAX_UNPACKED)
    except zlib.error:
        raise MessageInvalid from None
    # What is not at its end is too long, or cut off; and nothing may come behind it.
    if not inflater.eof or inflater.unused_data:
        raise MessageInvalid
    return unpacked


def unpacked_from_post(text: str) -> bytes:
    """The message in a form (SAML bindings, section 3.5.4); its lines may be wrapped. Raises MessageInvalid.

    node-saml deflates what it posts as well, unless it is told not to.
    """
    packed = _decoded("".join(text.split()) if len(text) <= MAX_PACKED else text)
    return packed if packed.lstrip()[:1] == b"<" else _inflated(packed)


def _decoded(text: str) -> bytes:
    if not 0 < len(text) <= MAX_PACKED:
        raise MessageInvalid
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise MessageInvalid from None


def packed_for_redirect(message: bytes) -> str:
    """The message as it stands in a query, before it is quoted."""
    deflater = zlib.compressobj(9, zlib.DEFLATED, -15)
    return base64.b64encode(deflater.compress(message) + deflater.flush()).decode()


def packed_for_post(message: bytes) -> str:
    return base64.b64encode(message).decode()


def check_relay_state(relay_state: str | None) -> None:
    """Raises RelayStateInvalid."""
    if relay_state is not None and (len(relay_state.encode("utf-8", "surrogatepass")) > MAX_RELAY_STATE or not is_plain(relay_state)):
        raise RelayStateInvalid


def check_said(message: Said, provider: IdentityProvider, endpoint: str, now: datetime) -> None:
    """Whether the registered service says this here and now. Raises MessageInvalid, IssuerUnknown, MessageElsewhere, MessageStale."""
    if not _ID.fullmatch(message.id):
        raise MessageInvalid
    if message.issuer != provider.entity_id:
        raise IssuerUnknown
    if message.destination is not None and message.destination != endpoint:
        raise MessageElsewhere
    if abs(message.issue_instant - now) > FRESH:
        raise MessageStale


def check_asked(request: AuthnRequest, provider: IdentityProvider, endpoint: str, now: datetime) -> None:
    """Whether this request is answered (security.md X-3). Raises AcsUrlUnknown, BindingUnsupported, and what `check_said` raises."""
    check_said(request, provider, endpoint, now)
    if request.acs_url is not None and request.acs_url != provider.acs_url:
        raise AcsUrlUnknown
    if request.binding is not None and request.binding != HTTP_POST:
        raise BindingUnsupported
