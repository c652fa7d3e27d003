"""Client ID metadata documents: the address that names a client, and the metadata that is published there.

Source: draft-ietf-oauth-client-id-metadata-document. The Model Context Protocol names version -00, and the rules
of -01 and later that are stricter hold, too. This module alone knows the draft (docs/adr/0044).
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from core.applications.model import client_settings
from core.federation.oauth.model import client_metadata
from core.kernel import uris
from core.kernel.errors import Invalid
from core.kernel.policy import Policy

MAX_ADDRESS_LENGTH: Final = 500
FETCH_WITHIN: Final = 3.0  # seconds
# How long a document is used without a new request. Its own headers decide between these two.
MIN_FRESH: Final = timedelta(minutes=5)
MAX_FRESH: Final = timedelta(hours=24)
_JSON: Final = re.compile(r"application/(?:json|[a-z0-9.-]+\+json)")
_SECRETS: Final = frozenset({"client_secret", "client_secret_expires_at"})


class ClientAddressInvalid(Invalid):
    """The client_id is not an address of a client's metadata. Ask the developer of the application to correct it."""

    def __init__(self, flaw: str | None = None) -> None:
        """`flaw` is the rest of a sentence about the address."""
        super().__init__(
            None if flaw is None else f"The client_id is an address, but {flaw} Ask the developer of the application to correct it."
        )


class ClientDocumentUnavailable(Invalid):
    """The application publishes no usable description of itself. Try again later, or tell its developer."""

    def __init__(self, host: str | None = None, reason: str | None = None, advice: str = "Tell its developer.") -> None:
        """`reason` is the rest of a sentence about the description, with our words only. `advice` is the next step."""
        super().__init__(
            None if reason is None else f"The description that the application at {host} publishes of itself {reason}. {advice}"
        )


class ClientHostBusy(ClientDocumentUnavailable):
    """The host of the application had too many requests, so that it was not asked for its description. Try again later."""

    def __init__(self, host: str) -> None:
        super().__init__(host, "was not available in time", "Try again later, or tell its developer.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientDocument:
    """The checked metadata of a client. `fetched_at` is in UTC."""

    address: str  # the client id
    name: str
    redirect_uris: tuple[str, ...]
    method: client_metadata.ClientMethod
    fetched_at: datetime
    is_native: bool = False  # a program on the user's device
    uses_device_flow: bool = False
    jwks: tuple[client_settings.Jwk, ...] | None = None
    jwks_uri: str | None = None

    @property
    def authentication(self) -> str:
        """The method, and the host that publishes the keys, if it is not the document that has them.

        A change of either asks for consent again, and a change of the keys does not.
        """
        return self.method.value if self.jwks_uri is None else f"{self.method.value} {host_of(self.jwks_uri)}"


def is_address(client_id: str | None) -> bool:
    """Return whether a client id is meant as the address of a document."""
    return client_id is not None and client_id.startswith("https://")


def host_of(address: str) -> str:
    """Return the host of a valid address in A-labels and lower case, with a port other than 443."""
    return client_settings.client_host(address) or ""


def check_address(address: str, policy: Policy) -> None:
    """Check that the client id can be the address of a document."""
    if len(address) > MAX_ADDRESS_LENGTH:
        raise ClientAddressInvalid(f"it has more than {MAX_ADDRESS_LENGTH} characters.")
    if flaw := uris.web_flaw(address) or (None if is_address(address) else "it must start with https://."):
        raise ClientAddressInvalid(flaw)
    if not uris.has_port_of(address, policy.key_ports):
        raise ClientAddressInvalid("its port is not allowed.")
    if "?" in address:
        raise ClientAddressInvalid("it has a query.")
    segments = urlsplit(address).path.split("/")
    if not any(segments):
        raise ClientAddressInvalid("it has no path.")
    if any(unquote(segment) in (".", "..") for segment in segments):
        raise ClientAddressInvalid("its path has a segment of dots.")


def parse_document(address: str, media_type: str, body: bytes, policy: Policy, now: datetime) -> ClientDocument:
    """Return the metadata that was published at this address, and fetched now.

    Members that we do not know, and grants that the client may not have, are ignored.
    """
    host = host_of(address)
    if len(body) > policy.client_document_bytes:
        raise ClientDocumentUnavailable(host, f"is larger than {policy.client_document_bytes} bytes")
    if not _JSON.fullmatch(media_type.partition(";")[0].strip().lower()):
        raise ClientDocumentUnavailable(host, "is not served as application/json")
    try:
        return _parse_members(address, _parse_json(body), policy, now)
    except client_metadata.MetadataFlaw as flaw:
        raise ClientDocumentUnavailable(host, str(flaw)) from None


def _parse_json(body: bytes) -> dict[str, Any]:
    try:
        members = json.loads(body.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        members = None
    if not isinstance(members, dict):
        raise client_metadata.MetadataFlaw("is not a JSON object")
    return members


def _parse_members(address: str, members: Mapping[str, Any], policy: Policy, now: datetime) -> ClientDocument:
    if members.get("client_id") != address:
        raise client_metadata.MetadataFlaw("has another client_id than its own address")
    if _SECRETS & members.keys():
        raise client_metadata.MetadataFlaw("has a client secret, which a published description must not have")
    metadata, (jwks, jwks_uri) = client_metadata.parse_metadata(members), client_metadata.parse_keys(members, policy)
    method = _method(members, has_keys=jwks is not None or jwks_uri is not None)
    uses_keys = method is client_metadata.ClientMethod.PRIVATE_KEY_JWT
    return ClientDocument(
        address=address,
        name=metadata.name,
        redirect_uris=metadata.redirect_uris,
        method=method,
        fetched_at=now,
        is_native=metadata.is_native,
        uses_device_flow=metadata.uses_device_flow,
        jwks=jwks if uses_keys else None,
        jwks_uri=jwks_uri if uses_keys else None,
    )


def _method(members: Mapping[str, Any], *, has_keys: bool) -> client_metadata.ClientMethod:
    """Return the method of the client: the one that it names, or the strongest of several, or that of its keys.

    Some documents list all methods as the client would know them from the metadata of a server.
    """
    named = client_metadata.read_text(members, "token_endpoint_auth_method")
    several = client_metadata.read_texts(members, "token_endpoint_auth_methods_supported")
    methods = (
        (named,)
        if named is not None
        else several or ((client_metadata.ClientMethod.PRIVATE_KEY_JWT if has_keys else client_metadata.ClientMethod.NONE),)
    )
    if client_metadata.ClientMethod.PRIVATE_KEY_JWT in methods and has_keys:
        return client_metadata.ClientMethod.PRIVATE_KEY_JWT
    if client_metadata.ClientMethod.NONE in methods:
        return client_metadata.ClientMethod.NONE
    if client_metadata.ClientMethod.PRIVATE_KEY_JWT in methods:
        raise client_metadata.MetadataFlaw("names private_key_jwt, but has no keys")
    raise client_metadata.MetadataFlaw("names no method of authentication that a published client can use: private_key_jwt or none")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the members of an object, each once: two parsers would choose different ones."""
    members = dict(pairs)
    if len(members) < len(pairs):
        raise client_metadata.MetadataFlaw("has a member twice")
    return members


def _refuse_constant(name: str) -> None:
    raise client_metadata.MetadataFlaw(f"has the value {name}, which is not JSON")


def fresh_for(cache_control: str, age: str) -> timedelta:
    """Return how long a response with these headers is used without a new request (RFC 9111 section 5.2.2)."""
    directives = [part.strip().lower().partition("=") for part in cache_control.split(",")]
    names = {name: value.strip('"') for name, _, value in directives}
    if names.keys() & {"no-store", "no-cache"}:
        return MIN_FRESH
    seconds = _seconds(names.get("s-maxage") or names.get("max-age") or "0") - _seconds(age or "0")
    return min(max(timedelta(seconds=seconds), MIN_FRESH), MAX_FRESH)


def _seconds(text: str) -> int:
    return min(int(text[:10]), 10**7) if text.isascii() and text.isdigit() else 0
