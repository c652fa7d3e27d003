"""API resources: an organization's APIs that applications get access tokens for (RFC 8707).

An identifier is an https URL at a host that the organization has verified, or a URN with the organization's id.
Organizations lose domains, so every use checks who owns the host. An identifier can therefore be registered twice, one
after the other. At any time, at most one of the two organizations owns the identifier's host.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from core.applications.model import users
from core.applications.model.services import is_scope
from core.kernel import errors, uris
from core.kernel.api_scopes import ApiScope
from core.kernel.values import Email
from core.programs.model import client_policy

MAX_RESOURCES: Final = 100  # per organization
MAX_SCOPES: Final = 50  # per resource
# Characters in all scopes of a resource, separated by spaces. A token can contain all these scopes, and tokens over 8
# KiB are refused (security J-7).
MAX_SCOPE_TEXT: Final = 1500
MAX_IDENTIFIER_LENGTH: Final = 255
MIN_TOKEN_SECONDS: Final = 60
MAX_TOKEN_SECONDS: Final = 3600
DEFAULT_TOKEN_SECONDS: Final = 900
# The scopes in OpenID Connect and in our own API, in lower case. An API resource must not give these scopes another
# meaning.
RESERVED_SCOPES: Final = frozenset(
    {"openid", "profile", "email", "address", "phone", "offline_access", "org", "roles", "permissions", "groups", *ApiScope}
)
_URN_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


class ApiResourceNotFound(errors.NotFound):
    """This API resource does not exist."""


class IdentifierInvalid(errors.Invalid):
    """Use an https:// URL of at most 255 ASCII characters with a valid host and port, without user name, fragment and *, or a URN."""


class IdentifierUrnInvalid(errors.Invalid):
    """A URN must be urn:gatehouse:<id of your organization, in lower case>:<name>. Names have 1 to 63 letters, digits, dots, - and _."""


class IdentifierHostNotVerified(errors.Invalid):
    """The host of the identifier must be your organization's verified domain, or below it. Verify the domain first."""


class IdentifierReserved(errors.Invalid):
    """Identifiers at this address are reserved for Gatehouse itself. Choose a host of your own."""


class IdentifierTaken(errors.Conflict):
    """There is an API resource with this identifier already. Choose another identifier."""


class TooManyApiResources(errors.Invalid):
    """The organization has the maximum number of API resources. Delete one that is no longer used."""


class NoApiResourceChanges(errors.Invalid):
    """The request changes nothing. Send at least one of name, scopes and token_seconds."""


class ResourceScopesInvalid(errors.Invalid):
    """An API resource has at most 50 scopes, each once, of printable ASCII without spaces, and of at most 1,500 characters together."""


class ResourceScopeReserved(errors.Invalid):
    """A scope has a name of OpenID Connect or of Gatehouse's own API. Choose another name."""


class ImpliedScopeInvalid(errors.Invalid):
    """A scope may imply other scopes of the same API resource, each once, but not itself, also not through others."""


class ResourceTokenSecondsInvalid(errors.Invalid):
    """The lifetime of tokens for an API resource must be 60 to 3,600 seconds."""


class ResourceClientNotFound(errors.NotFound):
    """The organization has no application with this client id, or it may not ask for this API resource."""


class OwnScopeUnknown(errors.Invalid):
    """The API resource has no such scope. Grant each of its scopes at most once."""


class PublicClientHasNoScopes(errors.Invalid):
    """Applications of the type spa, mobile or desktop cannot keep a secret, so they get no scopes for themselves. Send an empty list."""


class NotAssignedToResource(errors.NotFound):
    """This user is not assigned to the API resource."""


class GroupNotAssignedToResource(errors.NotFound):
    """This group is not assigned to the API resource."""


class NoAccessToResource(users.NoAccessToService):
    """You don't have access to the API that this application asks for. Ask its administrators for access, or sign in as another user."""


@dataclass(frozen=True, slots=True)
class ResourceScope:
    """An API resource's scope. The description tells users what it allows. Access with a scope includes the scopes that it implies."""

    name: str
    description: str
    implies: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ResourceIdentifier:
    """An API resource's identifier."""

    text: str  # as registered, and the `aud` in tokens
    canonical: str  # the form in which identifiers are compared
    host: str | None  # the organization must have verified it; None for URNs and the loopback interface


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiResource:
    """An organization's API. Times are UTC."""

    id: UUID
    org_id: UUID
    identifier: str  # as registered, and the `aud` in tokens
    name: str
    scopes: tuple[ResourceScope, ...]
    token_seconds: int  # how long access tokens live
    policy: users.AccessPolicy = users.AccessPolicy.ANYONE  # the users that applications get tokens for
    external_clients: client_policy.ExternalClientPolicy = client_policy.NO_EXTERNAL_CLIENTS
    created_at: datetime
    updated_at: datetime
    is_active: bool = True  # False while the organization does not have the identifier's host

    @property
    def scope_names(self) -> tuple[str, ...]:
        return tuple(scope.name for scope in self.scopes)

    @property
    def implications(self) -> Mapping[str, Collection[str]]:
        """The scopes that scopes imply, by the implying scope's name."""
        return {scope.name: scope.implies for scope in self.scopes if scope.implies}

    @property
    def external_scopes(self) -> tuple[str, ...]:
        """The scopes that external clients may ask for, and the scopes that these imply."""
        return self.granted_scopes(self.external_clients.known_scopes(self.scope_names))

    def access(self, names: Collection[str]) -> "ResourceAccess":
        """Return the access that these scopes give."""
        return ResourceAccess(self.id, self.name, self.identifier, tuple(scope for scope in self.scopes if scope.name in names))

    def known_scopes(self, names: Collection[str]) -> tuple[str, ...]:
        """Return which of these names are the resource's scopes, in its order."""
        return tuple(name for name in self.scope_names if name in names)

    def granted_scopes(self, names: Collection[str]) -> tuple[str, ...]:
        """Return which of these names are the resource's scopes, and the scopes that they imply, in its order."""
        return self.known_scopes(add_implied(self.known_scopes(names), self.implications))


@dataclass(frozen=True, slots=True)
class ExternalTarget:
    """An API resource that an external client asks for, and what must be known about its organization, which is active."""

    resource: ApiResource
    org_slug: str
    has_sign_in_policy: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceClient:
    """An application that may ask for an API resource on behalf of its users.

    `scopes` are the scopes that the application gets for itself, without a user. `scopes` are empty if an admin granted
    none.
    """

    client_id: UUID
    service_id: UUID
    slug: str
    name: str
    scopes: tuple[str, ...]
    created_at: datetime  # UTC


@dataclass(frozen=True, slots=True)
class ResourceAccess:
    """Access to an API resource that a user gives an application, or is asked to give, described for the user."""

    id: UUID
    name: str
    identifier: str
    scopes: tuple[ResourceScope, ...]


@dataclass(frozen=True, slots=True)
class ResourceAssignment:
    """A user that is assigned to an API resource, and since when (UTC)."""

    user_id: UUID
    email: Email
    assigned_at: datetime


def parse_identifier(text: str, org_id: UUID, issuer: str) -> ResourceIdentifier:
    """Return the identifier for this organization's API resource.

    Whether the organization has verified the host is not checked here.

    `issuer` is our base URL. Only an issuer on the loopback interface accepts APIs on the loopback interface.
    """
    text = uris.to_ascii(text)
    canonical = uris.normalize(text)
    if canonical is None or len(text) > MAX_IDENTIFIER_LENGTH:
        raise IdentifierInvalid
    prefix = f"urn:gatehouse:{org_id}:"
    if canonical.startswith(prefix) and _URN_NAME.fullmatch(canonical.removeprefix(prefix)):
        return ResourceIdentifier(text, canonical, None)
    if canonical.startswith("urn:"):
        raise IdentifierUrnInvalid
    host = uris.host_of(text)
    if host is None or not uris.is_web_url(text):
        raise IdentifierInvalid
    if uris.is_same_server(text, issuer):
        raise IdentifierReserved
    if uris.is_on_loopback(text):
        if not uris.is_on_loopback(issuer):
            raise IdentifierInvalid
        return ResourceIdentifier(text, canonical, None)
    return ResourceIdentifier(text, canonical, host)


def add_implied(names: Collection[str], implications: Mapping[str, Collection[str]]) -> frozenset[str]:
    """Return these scopes, and the scopes that they imply, directly or through further scopes."""
    found, unread = {*names}, [*names]
    while unread:
        new = {*implications.get(unread.pop(), ())} - found
        found |= new
        unread += new
    return frozenset(found)


def check_scopes(scopes: Sequence[ResourceScope]) -> tuple[ResourceScope, ...]:
    """Return the scopes for an API resource."""
    names = [scope.name for scope in scopes]
    if len(names) > MAX_SCOPES or len(set(names)) < len(names) or not all(map(is_scope, names)) or len(" ".join(names)) > MAX_SCOPE_TEXT:
        raise ResourceScopesInvalid
    if not RESERVED_SCOPES.isdisjoint(name.lower() for name in names):
        raise ResourceScopeReserved
    implications = {scope.name: scope.implies for scope in scopes}
    for scope in scopes:
        is_known = set(scope.implies) <= set(names) and len(set(scope.implies)) == len(scope.implies)
        if not is_known or scope.name in add_implied(scope.implies, implications):
            raise ImpliedScopeInvalid
    return tuple(scopes)


def check_token_seconds(seconds: int) -> int:
    """Return how long tokens live."""
    if not MIN_TOKEN_SECONDS <= seconds <= MAX_TOKEN_SECONDS:
        raise ResourceTokenSecondsInvalid
    return seconds
