"""Services, which are an organization's applications: entity, settings, claims document, registered URIs, and their rules."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from enum import StrEnum
from hmac import compare_digest
from types import MappingProxyType
from typing import Any, Final, TypeAlias
from uuid import UUID

from core.applications.model import client_settings
from core.applications.model.client_settings import ClientSettings, known_name
from core.applications.model.plans import Plan
from core.applications.model.users import AccessSettings
from core.kernel import connections, errors, uris
from core.kernel.outbound import LONGEST_URL
from core.kernel.values import Slug, digest, new_secret, provided
from core.tenancy.model.sign_in_policies import PolicyApplication

USER_BATCH: Final = 10_000  # users that one statement removes when their service is deleted
# If an external client's document is not available, its grants go on by the stored document for this time.
DOCUMENT_USABLE_FOR: Final = timedelta(days=7)
SERVICE_BATCH: Final = 100  # services that a list reads at once; a service can be as large as a request body
# The settings for scopes, with their connections.
SCOPES: Final[Mapping[str, connections.ConnectionSlug]] = MappingProxyType(
    {f"{slug}_scopes": slug for slug in connections.PLATFORM_CONNECTIONS}
)
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")  # RFC 6749 section 3.3


class ServiceNotFound(errors.NotFound):
    """This application does not exist."""


class ServiceSlugTaken(errors.Invalid):
    """The organization already has an application with this slug. Choose another slug."""


class ServiceLimitExceeded(errors.Invalid):
    """The organization has reached its limit of applications. Delete one, or ask the operator of Gatehouse for a higher limit."""

    code = "SERVICE_LIMIT_EXCEEDED"
    audited = True


class EmptyServiceUpdate(errors.Invalid):
    """The request changes nothing. Send at least one field to change."""


class ScopeInvalid(errors.Invalid):
    """Scopes must be printable ASCII without spaces, quotation marks and backslashes, and each scope can be listed only once."""


class RedirectUriInvalid(errors.Invalid):
    """A redirect URI must start with https:// or http://localhost (in apps: com.example.app:/), without user name, fragment or asterisk."""


class DuplicateRedirectUri(errors.Invalid):
    """A redirect URI is listed twice. List each redirect URI only once."""


class ActivationUriInvalid(errors.Invalid):
    """The device activation page must start with https:// or http://localhost, and must not have a user name, fragment or asterisk."""


class PostLogoutRedirectUriInvalid(errors.Invalid):
    """A post-logout redirect URI must start with https:// or http://localhost (in apps: com.example.app:/). List each only once."""


class BackchannelLogoutUriInvalid(errors.Invalid):
    """The back-channel logout URI must be the https:// URL of a public host (http:// too for `web` and `api`), without fragment."""


class NoClientSecret(errors.Invalid):
    """Applications of the type spa, mobile or desktop have no client secret because they cannot keep one. Use PKCE instead."""


class FormerSecretWorks(errors.Invalid):
    """A replaced secret still works. If you continue, it stops working at once. Check the box if no program uses it any longer."""


class ServiceOrder(StrEnum):
    """How a service list is sorted."""

    CREATED = "created"  # oldest first
    NAME = "name"


class ServiceType(StrEnum):
    """An application's type, which decides whether it is a public or a confidential client."""

    WEB = "web"
    SPA = "spa"  # runs in a browser, without its own server
    MOBILE = "mobile"
    DESKTOP = "desktop"
    API = "api"

    @property
    def is_public(self) -> bool:
        """Return whether the application is a public client: users can read its memory, so it has no secret and uses PKCE."""
        return self is ServiceType.SPA or self.is_native

    @property
    def is_native(self) -> bool:
        """Return whether the application is a program on the user's device, outside a browser (RFC 8252)."""
        return self in (ServiceType.MOBILE, ServiceType.DESKTOP)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSettings(ClientSettings):
    """The application settings that its organization can change."""

    name: str
    service_type: ServiceType
    redirect_uris: tuple[str, ...]
    device_activation_uri: str | None
    pkce_without_secret: bool = False  # whether a confidential client may use PKCE instead of its secret
    email_sign_in: bool | None = None  # whether users can sign in by email; None: as on the platform
    is_trusted: bool = False  # the organization's confirmed members are not asked for their consent
    id_token_claims: bool = True  # the claims for granted scopes stand in the ID token, too
    post_logout_redirect_uris: tuple[str, ...] = ()
    backchannel_logout_uri: str | None = None  # where logout tokens are sent
    # None: no connection has scopes
    connection_scopes: Mapping[connections.ConnectionSlug, tuple[str, ...]] | None = None

    def scopes_at(self, slug: connections.ConnectionSlug) -> tuple[str, ...] | None:
        """Return the scopes to request at a connection, or None for the platform's defaults."""
        return (self.connection_scopes or {}).get(slug)

    @property
    def own_uris(self) -> tuple[str, ...]:
        """Return all URIs in these settings at which the application itself answers."""
        others = (self.device_activation_uri, self.backchannel_logout_uri, self.initiate_login_uri)
        return (*self.redirect_uris, *self.post_logout_redirect_uris, *(uri for uri in others if uri is not None))

    def setting(self, name: str) -> Any:
        """Return the value for a setting that SETTINGS names."""
        return self.scopes_at(SCOPES[name]) if name in SCOPES else getattr(self, name)


SETTINGS: Final = (*(each.name for each in fields(ServiceSettings) if each.name != "connection_scopes"), *SCOPES)
# New setting values, by name. None clears a setting. A setting that is missing or KEEP stays as it is.
SettingChanges: TypeAlias = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Service(ServiceSettings):
    """An application that signs its users in through Gatehouse. Times are UTC."""

    id: UUID
    org_id: UUID
    slug: Slug
    client_id: UUID
    credential_id: UUID  # stands for its secret and its keys in the tokens that it gets for itself
    client_secret_hash: bytes | None = field(repr=False)  # SHA-256; None for public clients
    subscription_count: int  # maintained by the transactions that add and remove subscriptions
    created_at: datetime
    updated_at: datetime
    access: AccessSettings = field(default_factory=AccessSettings)
    former_secret_hash: bytes | None = field(default=None, repr=False)  # accepted until `former_secret_expires_at`
    former_secret_expires_at: datetime | None = None
    logo_url: str | None = None  # an uploaded image
    client_uri: str | None = None  # an external client's address, or None for a registered application
    registered_with: str | None = None  # the token with which the application registered itself
    document_fetched_at: datetime | None = None  # for an external client: when the metadata in this row were fetched
    document_failing_since: datetime | None = None  # for an external client: when the latest series of failed fetches began
    document_failed_at: datetime | None = None  # for an external client: when the last fetch failed
    client_authentication: str | None = None  # for an external client: its method, and the host for its keys, as a consent covers them
    uses_device_flow: bool = False  # for an external client: its metadata list this grant; registered applications may always use it

    @property
    def is_external(self) -> bool:
        """Whether this is an external client, and not an application that the organization registered."""
        return self.client_uri is not None

    @property
    def client_name(self) -> str:
        """The client id in requests, tokens and answers: the address for an external client, and the id for a registered application."""
        return self.client_uri or str(self.client_id)

    @property
    def known_name(self) -> str:
        """The name that pages show without further words: the application's name, or an external client's host."""
        return self.name if self.client_uri is None else known_name(self.client_uri)

    @property
    def policy_application(self) -> PolicyApplication:
        """The application as sign-in policies see it."""
        return PolicyApplication(self.id, self.name, self.email_sign_in, self.required_strength)

    @property
    def is_document_gone(self) -> bool:
        """Whether an external client's document was not available for so long that its grants have ended.

        A single failure is not enough, because only sign-ins fetch the document: the last failure is so much later than the first.
        """
        since, latest = self.document_failing_since, self.document_failed_at
        return since is not None and latest is not None and latest >= since + DOCUMENT_USABLE_FOR

    def has_old_document(self, now: datetime) -> bool:
        """Return whether an external client's stored metadata are too old for a sign-in that may not fetch them now."""
        return self.document_fetched_at is None or now >= self.document_fetched_at + DOCUMENT_USABLE_FOR

    def has_secret(self, secret_hash: bytes, now: datetime) -> bool:
        """Return whether this is the client secret's hash, or the former secret's hash while the former secret is valid."""
        hashes = (self.client_secret_hash, self.former_secret_hash if self.former_secret_works(now) else None)
        return any(compare_digest(secret_hash, valid or b"") for valid in hashes)

    def former_secret_works(self, now: datetime) -> bool:
        """Return whether the client secret from before the last rotation is still accepted."""
        return self.former_secret_expires_at is not None and now < self.former_secret_expires_at


@dataclass(frozen=True, slots=True)
class ServiceQuota:
    """How many services an organization has, and its limit."""

    current_services: int
    max_services: int
    tier: str | None  # the display name; None if the organization has no tier

    @property
    def is_reached(self) -> bool:
        """Return whether the organization can create no more services."""
        return self.current_services >= self.max_services


@dataclass(frozen=True, slots=True)
class CreatedService:
    """A new service with its secret, which cannot be read again."""

    service: Service
    default_plan: Plan
    quota: ServiceQuota
    client_secret: str | None = field(repr=False)  # None for public clients


@dataclass(frozen=True, slots=True)
class ServiceSummary:
    """A service in a list."""

    service: Service
    plan_count: int


def apply_settings(service: Service, settings: SettingChanges) -> Service:
    """Return the service with these settings.

    All redirect URIs are checked against the resulting type, including the URIs that stay. A service that becomes a
    public client loses its keys, as it loses its secret.
    """
    changes = provided(**settings)
    if not changes:
        raise EmptyServiceUpdate
    if unknown := changes.keys() - set(SETTINGS):
        raise TypeError(f"services have no settings {unknown}")
    changes |= {name: () for name in ("redirect_uris", "post_logout_redirect_uris") if changes.get(name, ()) is None}
    for name, to_stored in _STORED_FORMS.items():
        if changes.get(name) is not None:
            changes[name] = to_stored(changes[name])
    if changes.get("service_type", service.service_type).is_public:
        changes = {"jwks": None, "jwks_uri": None, **changes}
    scopes = {slug: changes.pop(name) if name in changes else service.setting(name) for name, slug in SCOPES.items()}
    changes["connection_scopes"] = {slug: chosen for slug, chosen in scopes.items() if chosen is not None} or None
    new = replace(service, **changes)
    client_settings.check(new, new.redirect_uris, is_public=new.service_type.is_public, pkce_without_secret=new.pkce_without_secret)
    if "redirect_uris" in changes or "service_type" in changes:
        validate_redirect_uris(new.service_type, new.redirect_uris)
    if changes.get("device_activation_uri") is not None and (flaw := uris.web_flaw(changes["device_activation_uri"])):
        raise ActivationUriInvalid(f"The device activation page is not allowed: {flaw}")
    if {"post_logout_redirect_uris", "backchannel_logout_uri", "service_type"} & changes.keys():
        _check_logout_uris(new)
    return new


def _check_logout_uris(service: Service) -> None:
    if flaw := _flaw_of_redirects(service.service_type, service.post_logout_redirect_uris):
        raise PostLogoutRedirectUriInvalid(f"A post-logout redirect URI is not allowed: {flaw}")
    if len(set(service.post_logout_redirect_uris)) < len(service.post_logout_redirect_uris):
        raise PostLogoutRedirectUriInvalid("A post-logout redirect URI is listed twice. List each only once.")
    uri = service.backchannel_logout_uri
    if uri is None:
        return
    # Without TLS, other parties could read the logout token. Only a confidential client may choose
    # that (Back-Channel Logout section 2.2).
    if len(uri) > LONGEST_URL or (service.service_type.is_public and not uri.startswith("https:")):
        raise BackchannelLogoutUriInvalid
    if flaw := uris.target_flaw(uri):
        raise BackchannelLogoutUriInvalid(f"The back-channel logout URI is not allowed: {flaw}")


def is_scope(text: str) -> bool:
    """Return whether the text can be a scope (RFC 6749 section 3.3)."""
    return _SCOPE.fullmatch(text) is not None


def _check_scopes(scopes: Sequence[str]) -> tuple[str, ...]:
    if len(set(scopes)) < len(scopes) or not all(map(is_scope, scopes)):
        raise ScopeInvalid
    return tuple(scopes)


# Converts a new setting value to its stored form. None needs no conversion.
_STORED_FORMS: Final[Mapping[str, Callable[..., object]]] = {
    **dict.fromkeys(SCOPES, _check_scopes),
    **dict.fromkeys(("redirect_uris", "post_logout_redirect_uris"), lambda values: tuple(map(uris.to_ascii, values))),
    **dict.fromkeys(
        ("device_activation_uri", "backchannel_logout_uri", "jwks_uri", "initiate_login_uri", *client_settings.LINKS), uris.canonicalize
    ),
    "jwks": client_settings.parse_keys,
}


def validate_redirect_uris(service_type: ServiceType, redirect_uris: Sequence[str]) -> None:
    """Check a service's redirect URIs. Native applications may also use private-use schemes (RFC 8252)."""
    if len(set(redirect_uris)) < len(redirect_uris):
        raise DuplicateRedirectUri
    if flaw := _flaw_of_redirects(service_type, redirect_uris):
        raise RedirectUriInvalid(f"A redirect URI is not allowed: {flaw}")


def _flaw_of_redirects(service_type: ServiceType, redirect_uris: Sequence[str]) -> str | None:
    flaw_of = uris.native_flaw if service_type.is_native else uris.web_flaw
    return next(filter(None, map(flaw_of, redirect_uris)), None)


def ensure_client_secret(service: Service) -> tuple[Service, str | None]:
    """Return the service with a client secret if its type needs a secret, or else without a secret. Also return the secret if it is new."""
    if service.service_type.is_public:
        return replace(service, client_secret_hash=None, former_secret_hash=None, former_secret_expires_at=None), None
    if service.client_secret_hash is not None:
        return service, None
    secret = new_secret()
    return replace(service, client_secret_hash=digest(secret)), secret


CLAIM_MEMBERS: Final = ("names", "prefix", "fixed", "values", "groups", "access_token")  # the document's members


class ClaimsChanged(errors.Conflict):
    """The claims of the application were changed by another request. Load them again, and repeat your change."""


@dataclass(frozen=True, slots=True)
class StoredClaims:
    """The document with its version. `changed_at` is UTC, and None if nothing was saved yet."""

    document: Mapping[str, Any]
    version: int = 0
    changed_at: datetime | None = None


NO_STORED_CLAIMS: Final = StoredClaims({})


REDIRECT_URIS = "redirect_uris"
POST_LOGOUT_REDIRECT_URIS = "post_logout_redirect_uris"


@dataclass(frozen=True, slots=True)
class UnregisteredUri:
    """A URI as a request sent it, which can be any text, and the application's setting that does not list it."""

    uri: str
    setting: str  # REDIRECT_URIS or POST_LOGOUT_REDIRECT_URIS
    service: Service

    @property
    def flaw(self) -> str | None:
        """Return why the URI cannot be registered, as the rest of a sentence with the subject "it", or None if it can be."""
        uri = uris.to_ascii(self.uri)
        return uris.native_flaw(uri) if self.service.service_type.is_native else uris.web_flaw(uri)

    @property
    def new_host(self) -> str | None:
        """Return the URI's host in A-labels, or its scheme if it has no host, unless the application uses it already."""
        start = _host_or_scheme(self.uri)
        return None if start in {None, *map(_host_or_scheme, self.service.own_uris)} else start


def _host_or_scheme(uri: str) -> str | None:
    return uris.host_of(uri) or uris.start_of(uri)


class UriNotRegistered(errors.Invalid):
    """A URI of the request is not registered for the application."""

    def __init__(self, unregistered: UnregisteredUri | None = None) -> None:
        """`unregistered` is None for the platform's frontend, which its operator configures."""
        super().__init__()
        self.unregistered = unregistered
