"""The metadata with which a client describes itself, in a document that it publishes or in its own registration.

Source: RFC 7591 section 2. Members that we do not know, and grants that the client may not have, are ignored.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from core.applications.model import client_settings
from core.kernel import uris
from core.kernel.outbound import LONGEST_URL, KeyPortNotAllowed
from core.kernel.policy import Policy
from core.kernel.values import is_printable, is_visible

MAX_NAME_LENGTH: Final = 100
MAX_REDIRECT_URIS: Final = 50
DEVICE_CODE: Final = "urn:ietf:params:oauth:grant-type:device_code"  # RFC 8628 section 3.4
KEY_RULES: Final = "1 to 20 are allowed, each RSA of 2048 to 8192 bits, P-256 or Ed25519, with a kid of its own"
_QUOTATION_MARKS: Final = dict.fromkeys(
    map(ord, '"\u201c\u201d\u201e\u201f\u00ab\u00bb\u2039\u203a\u275d\u275e\u300c\u300d\u300e\u300f\u301d\u301e\uff02')
)
NATIVE: Final = "native"  # a value of application_type (OpenID Connect Dynamic Client Registration section 2)


class ClientMethod(StrEnum):
    """How an external client authenticates. It has no secret that we could know."""

    NONE = "none"
    PRIVATE_KEY_JWT = "private_key_jwt"


class MetadataFlaw(Exception):
    """The reason why metadata are refused, as the rest of a sentence about the description or the registration."""


class RedirectUriFlaw(MetadataFlaw):
    """The reason why a redirect URI is refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientMetadata:
    """The checked metadata of a client."""

    name: str
    redirect_uris: tuple[str, ...]
    is_native: bool  # a program on the user's device
    uses_device_flow: bool


def parse_metadata(members: Mapping[str, Any]) -> ClientMetadata:
    """Return the metadata that all clients have. Raises: MetadataFlaw."""
    redirect_uris = _parse_redirect_uris(members.get("redirect_uris"))
    grants, responses = read_texts(members, "grant_types"), read_texts(members, "response_types")
    if "authorization_code" not in (grants or ("authorization_code",)) or "code" not in (responses or ("code",)):
        raise MetadataFlaw("does not ask for the authorization code flow")
    _check_one_key_source(members)
    is_local = any(map(uris.is_on_device, redirect_uris))
    return ClientMetadata(
        name=_parse_name(members.get("client_name")),
        redirect_uris=redirect_uris,
        is_native=is_local or members.get("application_type") == NATIVE,
        uses_device_flow=DEVICE_CODE in (grants or ()),
    )


def _check_one_key_source(members: Mapping[str, Any]) -> None:
    """Check that not both sources of keys are given, also if the client does not use keys (RFC 7591 section 2)."""
    if members.get("jwks") is not None and members.get("jwks_uri") is not None:
        raise MetadataFlaw("has both jwks and jwks_uri")


def _parse_name(name: object) -> str:
    if not isinstance(name, str) or not is_visible(name):
        raise MetadataFlaw("has no client_name")
    # Pages quote the name. With a quotation mark in it, the rest of the name would read as a sentence of ours.
    name = " ".join(name.translate(_QUOTATION_MARKS).split())
    if not name:
        raise MetadataFlaw("has no client_name")
    if len(name) > MAX_NAME_LENGTH or not is_printable(name):
        raise MetadataFlaw(f"has a client_name with more than {MAX_NAME_LENGTH} characters, or with control characters")
    return name


def _parse_redirect_uris(values: object) -> tuple[str, ...]:
    """Return the redirect URIs. Those of native applications can have a private-use scheme, or http on the loopback interface."""
    if not isinstance(values, list) or not 0 < len(values) <= MAX_REDIRECT_URIS or not all(isinstance(uri, str) for uri in values):
        raise RedirectUriFlaw(f"does not have 1 to {MAX_REDIRECT_URIS} redirect_uris")
    if any(len(uri) > LONGEST_URL for uri in values):
        raise RedirectUriFlaw(f"has a redirect URI with more than {LONGEST_URL} characters")  # no request could carry it
    if flaw := next(filter(None, map(uris.native_flaw, values)), None):
        raise RedirectUriFlaw(f"has a redirect URI that is not allowed: {flaw.removesuffix('.')}")
    return tuple(dict.fromkeys(values))


def parse_keys(members: Mapping[str, Any], policy: Policy) -> tuple[tuple[client_settings.Jwk, ...] | None, str | None]:
    """Return the keys of the client, or the address that publishes them."""
    jwks, jwks_uri = members.get("jwks"), members.get("jwks_uri")
    if jwks_uri is not None:
        if not isinstance(jwks_uri, str):
            raise MetadataFlaw("has a jwks_uri that is not a text")
        jwks_uri = uris.canonicalize(jwks_uri)
        try:
            client_settings.check_keys_uri(jwks_uri, policy)
        except (client_settings.ClientKeysUriInvalid, KeyPortNotAllowed):
            raise MetadataFlaw("has a jwks_uri that is not allowed") from None
        return None, jwks_uri
    if jwks is None:
        return None, None
    keys = jwks.get("keys") if isinstance(jwks, dict) else None
    if not isinstance(keys, list) or not all(isinstance(key, dict) for key in keys):
        raise MetadataFlaw("has jwks that are not a set of keys")
    try:
        return client_settings.parse_keys(keys), None
    except client_settings.PrivateKeySent:
        raise MetadataFlaw("has a private or symmetric key, which is no longer secret") from None
    except client_settings.ClientKeysInvalid:
        raise MetadataFlaw(f"has keys that are not allowed: {KEY_RULES}") from None


def read_text(members: Mapping[str, Any], name: str) -> str | None:
    """Return the member with this name, or None if it is missing. Raises: MetadataFlaw unless it is a text."""
    value = members.get(name)
    if value is not None and not isinstance(value, str):
        raise MetadataFlaw(f"has a {name} that is not a text")
    return value


def read_texts(members: Mapping[str, Any], name: str) -> tuple[str, ...] | None:
    """Return the member with this name, or None if it is missing. Raises: MetadataFlaw unless it is a list of texts."""
    values = members.get(name)
    if values is None:
        return None
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise MetadataFlaw(f"has {name} that are not a list of texts")
    return tuple(values)
