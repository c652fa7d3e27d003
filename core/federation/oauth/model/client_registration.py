"""The metadata that a client registers by itself, and the client id that is a sealed copy of them.

Sources: RFC 7591, and OpenID Connect Dynamic Client Registration section 2 for `application_type`.
"""

import json
import re
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from core.applications.model import services
from core.applications.model.client_settings import LINKS, Jwk
from core.federation.oauth.model import client_metadata
from core.federation.oauth.model.client_documents import ClientDocument
from core.kernel import errors, uris
from core.kernel.policy import Policy

REGISTER_PATH: Final = "/auth/register"
PREFIX: Final = "registered:"  # of a sealed client id: no UUID and no address starts with it
MAX_LENGTH: Final = 2_000  # of a sealed client id
VALID_FOR: Final = timedelta(hours=24)  # until a first consent stores the client
GRANT_TYPES: Final = ("authorization_code", "refresh_token", client_metadata.DEVICE_CODE)  # that an external client can have
WEB: Final = "web"
SECRET_METHODS: Final = ("client_secret_basic", "client_secret_post")
DEFAULT_METHOD: Final = SECRET_METHODS[0]  # RFC 7591 section 2
_SEALED: Final = re.compile(rf"{PREFIX}[A-Za-z0-9_-]+")
_RAW: Final = -zlib.MAX_WBITS  # deflate without a header
_MAX_JSON: Final = 64 * 1024  # bytes of the JSON in a sealed client id


class RegistrationInvalid(errors.Invalid):
    """The metadata of the client are not valid. Correct them, and register again."""

    oauth_error = "invalid_client_metadata"


class RegistrationTooLong(RegistrationInvalid):
    """The registration is too long. Register fewer or shorter redirect_uris."""


class RegisteredRedirectUriInvalid(RegistrationInvalid):
    """A redirect URI of the client is not valid. Correct it, and register again."""

    oauth_error = "invalid_redirect_uri"


class SoftwareStatementRefused(errors.Invalid):
    """Software statements are not accepted here. Register without software_statement."""

    oauth_error = "unapproved_software_statement"


class RegistrationClosed(errors.Unauthenticated):
    """Clients cannot register themselves here. Send a registration token (initial access token), or ask an admin to register the client."""


class SealedClientInvalid(errors.Invalid):
    """This client_id was not issued here. Start again in the application, so that it registers again."""


class SealedClientExpired(SealedClientInvalid):
    """The application registered itself more than 24 hours ago, and was not used since. Start again in it, so that it registers again."""


class SealedClientsClosed(SealedClientInvalid):
    """Applications can no longer register themselves here. Ask the administrators of the API to register the application."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """The checked registration of a client."""

    metadata: client_metadata.ClientMetadata
    grant_types: tuple[str, ...]
    method: str = client_metadata.ClientMethod.NONE.value  # at the token endpoint
    jwks: tuple[Jwk, ...] | None = None
    jwks_uri: str | None = None
    links: Mapping[str, str] = field(default_factory=dict)  # of LINKS, with a registration token

    @property
    def application_type(self) -> str:
        return client_metadata.NATIVE if self.metadata.is_native else WEB

    @property
    def service_type(self) -> services.ServiceType:
        """The application type that the client gets in an organization."""
        if self.metadata.is_native:
            return services.ServiceType.DESKTOP
        return services.ServiceType.SPA if self.method == client_metadata.ClientMethod.NONE else services.ServiceType.WEB

    @property
    def settings(self) -> services.SettingChanges:
        """The settings of this application. It asks each user for consent each time, until an admin changes that."""
        keys: dict[str, object] = {"jwks": self.jwks, "jwks_uri": self.jwks_uri}
        chosen = {name: value for name, value in keys.items() if value is not None}
        return {"redirect_uris": self.metadata.redirect_uris, "always_ask_consent": True, **chosen, **self.links}


def parse_registration(members: Mapping[str, Any], policy: Policy, *, with_token: bool = False) -> Registration:
    """Return the registration with these members.

    Only a client `with_token` can authenticate. For others nothing is stored that could verify a secret or a key.
    """
    if members.get("software_statement") is not None:
        raise SoftwareStatementRefused
    try:
        metadata = client_metadata.parse_metadata(members)
        _check_application_type(members, metadata)
        asked = client_metadata.read_texts(members, "grant_types") or GRANT_TYPES[:2]
        method = client_metadata.read_text(members, "token_endpoint_auth_method")
        if with_token:
            metadata = replace(metadata, is_native=_is_native_application(members, metadata, method))
        links = {name: client_metadata.read_text(members, name) if with_token else None for name in LINKS}
        registration = Registration(
            metadata=metadata,
            grant_types=tuple(name for name in GRANT_TYPES if name in asked),
            links={name: link for name, link in links.items() if link},
        )
        if with_token and not metadata.is_native:
            return _with_method(registration, members, policy, method or DEFAULT_METHOD)
        if method not in (None, client_metadata.ClientMethod.NONE):
            kind = "a native application" if with_token else "a client without a registration token"
            raise client_metadata.MetadataFlaw(f"asks for the token_endpoint_auth_method {method!a:.40}, but {kind} can only have none")
        return registration
    except client_metadata.MetadataFlaw as flaw:
        refusal = RegisteredRedirectUriInvalid if isinstance(flaw, client_metadata.RedirectUriFlaw) else RegistrationInvalid
        raise refusal(f"The registration {flaw}. Correct it, and register again.") from None


def _is_native_application(members: Mapping[str, Any], metadata: client_metadata.ClientMetadata, method: str | None) -> bool:
    """Return whether the client becomes a native application, which has no secret.

    The loopback interface alone does not tell: a web application in development has such an address, too.
    """
    is_named = members.get("application_type") == client_metadata.NATIVE
    is_public = method == client_metadata.ClientMethod.NONE and metadata.is_native
    return is_named or is_public or any(map(uris.has_private_scheme, metadata.redirect_uris))


def _with_method(registration: Registration, members: Mapping[str, Any], policy: Policy, method: str) -> Registration:
    """Return the registration with this method. A method that we do not have becomes the default, which has a secret.

    Raises: MetadataFlaw.
    """
    if method == client_metadata.ClientMethod.PRIVATE_KEY_JWT:
        jwks, jwks_uri = client_metadata.parse_keys(members, policy)
        if jwks is None and jwks_uri is None:
            raise client_metadata.MetadataFlaw("names private_key_jwt, but has no keys")
        return replace(registration, method=method, jwks=jwks, jwks_uri=jwks_uri)
    return replace(registration, method=method if method in (*SECRET_METHODS, client_metadata.ClientMethod.NONE) else DEFAULT_METHOD)


def _check_application_type(members: Mapping[str, Any], metadata: client_metadata.ClientMetadata) -> None:
    """Check the redirect URIs against the type, if the client names one. Without one, its redirect URIs tell the type.

    A native application can have https, too: an address that the system opens in the application (RFC 8252 section 7.2).

    Raises: MetadataFlaw, RedirectUriFlaw.
    """
    named = members.get("application_type")
    if named not in (None, WEB, client_metadata.NATIVE):
        raise client_metadata.MetadataFlaw("has an application_type other than web and native")
    if named == WEB and metadata.is_native:
        raise client_metadata.RedirectUriFlaw("has the application_type web, and a redirect URI that does not start with https://")


# The sealed client id


def is_sealed(client_id: str | None) -> bool:
    """Return whether a client id is meant as a sealed copy of a client's metadata."""
    return client_id is not None and client_id.startswith(PREFIX)


def has_sealed_form(client_id: str) -> bool:
    """Return whether the length and the characters are those of a sealed client id."""
    return len(client_id) <= MAX_LENGTH and _SEALED.fullmatch(client_id) is not None


def to_payload(metadata: client_metadata.ClientMetadata, issued_at: datetime) -> bytes:
    """Return the metadata in the short form that is sealed. Raises: RegistrationTooLong if `from_payload` could not read them."""
    flags = {"a": int(metadata.is_native), "d": int(metadata.uses_device_flow)}
    fields = {"t": int(issued_at.timestamp()), "n": metadata.name, "r": metadata.redirect_uris, **flags}
    text = json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()
    if len(text) > _MAX_JSON:
        raise RegistrationTooLong
    packer = zlib.compressobj(9, zlib.DEFLATED, _RAW)
    return packer.compress(text) + packer.flush()


def from_payload(client_id: str, payload: bytes) -> ClientDocument | None:
    """Return the client with this sealed client id and payload, or None if it has another form. `fetched_at` is when it registered."""
    with suppress(zlib.error, ValueError, KeyError, TypeError, OverflowError):
        fields = json.loads(zlib.decompressobj(_RAW).decompress(payload, _MAX_JSON))
        return ClientDocument(
            address=client_id,
            name=fields["n"],
            redirect_uris=tuple(fields["r"]),
            method=client_metadata.ClientMethod.NONE,
            fetched_at=datetime.fromtimestamp(fields["t"], UTC),
            is_native=bool(fields["a"]),
            uses_device_flow=bool(fields["d"]),
        )
    return None
