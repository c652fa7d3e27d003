"""The scopes of our own API, `<base URL>/api`. A scope lets a token read or change one area of the API (RFC 6749 section 3.3).

Tokens of service accounts and personal access tokens have scopes. The token of a user's own session
has none, because it may do everything that the user may do. A scope never gives a right. It only
narrows the rights of the token's owner, which are read from the database for each request.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from core.kernel.errors import Forbidden, Invalid
from core.kernel.roles import Capability


class Area(StrEnum):
    """A part of the API with scopes of its own."""

    ORGANIZATION = "organization"
    MEMBERS = "members"
    SERVICES = "services"
    RESOURCES = "resources"
    API_KEYS = "api_keys"
    END_USERS = "end_users"
    BILLING = "billing"
    WEBHOOKS = "webhooks"
    INTEGRATIONS = "integrations"
    AUDIT = "audit"
    ANALYTICS = "analytics"
    ACCOUNT = "account"
    PLATFORM_ORGANIZATIONS = "platform_organizations"
    PLATFORM_USERS = "platform_users"
    PLATFORM_AUDIT = "platform_audit"
    PLATFORM_INSTALLATION = "platform_installation"

    @property
    def is_of_platform(self) -> bool:
        return self.startswith("platform_")


class ApiScope(StrEnum):
    """A scope of our own API. A `write` scope does not include the `read` scope of its area."""

    ORGANIZATION_READ = "organization:read"
    ORGANIZATION_WRITE = "organization:write"
    MEMBERS_READ = "members:read"
    MEMBERS_WRITE = "members:write"
    SERVICES_READ = "services:read"
    SERVICES_WRITE = "services:write"
    RESOURCES_READ = "resources:read"
    RESOURCES_WRITE = "resources:write"
    API_KEYS_READ = "api_keys:read"
    API_KEYS_WRITE = "api_keys:write"
    END_USERS_READ = "end_users:read"
    END_USERS_WRITE = "end_users:write"
    BILLING_WRITE = "billing:write"
    WEBHOOKS_READ = "webhooks:read"
    WEBHOOKS_WRITE = "webhooks:write"
    INTEGRATIONS_READ = "integrations:read"
    INTEGRATIONS_WRITE = "integrations:write"
    AUDIT_READ = "audit:read"
    ANALYTICS_READ = "analytics:read"
    ACCOUNT_READ = "account:read"
    ACCOUNT_WRITE = "account:write"
    PLATFORM_ORGANIZATIONS_READ = "platform_organizations:read"
    PLATFORM_ORGANIZATIONS_WRITE = "platform_organizations:write"
    PLATFORM_USERS_READ = "platform_users:read"
    PLATFORM_USERS_WRITE = "platform_users:write"
    PLATFORM_AUDIT_READ = "platform_audit:read"
    PLATFORM_INSTALLATION_READ = "platform_installation:read"

    @property
    def area(self) -> Area:
        return Area(self.partition(":")[0])


DESCRIPTIONS: Final[Mapping[ApiScope, str]] = MappingProxyType(
    {
        ApiScope.ORGANIZATION_READ: "Read the organization and its branding.",
        ApiScope.ORGANIZATION_WRITE: "Change the organization and its branding.",
        ApiScope.MEMBERS_READ: "Read members, invitations and blocked users.",
        ApiScope.MEMBERS_WRITE: "Invite, change and remove members.",
        ApiScope.SERVICES_READ: "Read applications, their access settings, plans and SAML settings.",
        ApiScope.SERVICES_WRITE: "Create and change applications and their SAML settings.",
        ApiScope.RESOURCES_READ: "Read API resources.",
        ApiScope.RESOURCES_WRITE: "Create, change and delete API resources.",
        ApiScope.API_KEYS_READ: "Read API keys, without their secrets.",
        ApiScope.API_KEYS_WRITE: "Create and delete API keys.",
        ApiScope.END_USERS_READ: "Read end users, assignments and subscriptions.",
        ApiScope.END_USERS_WRITE: "Assign users to applications, and end their sessions.",
        ApiScope.BILLING_WRITE: "Create, change and delete plans.",
        ApiScope.WEBHOOKS_READ: "Read webhooks and their deliveries.",
        ApiScope.WEBHOOKS_WRITE: "Create, change, test and delete webhooks, and repeat deliveries.",
        ApiScope.INTEGRATIONS_READ: "Read the settings of directory, SIEM, domain and mail server.",
        ApiScope.INTEGRATIONS_WRITE: "Change the settings of directory, SIEM, domain and mail server.",
        ApiScope.AUDIT_READ: "Read and export the audit log.",
        ApiScope.ANALYTICS_READ: "Read figures about sign-ins.",
        ApiScope.ACCOUNT_READ: "Read your own account: profile, devices, consents, applications and organizations.",
        ApiScope.ACCOUNT_WRITE: "Change your own account: rename and revoke devices, and withdraw consents.",
        ApiScope.PLATFORM_ORGANIZATIONS_READ: "Read all organizations and tiers.",
        ApiScope.PLATFORM_ORGANIZATIONS_WRITE: "Approve, reject, suspend and activate organizations, and change their tiers.",
        ApiScope.PLATFORM_USERS_READ: "Read all users, their second factors and logs, and the platform owners.",
        ApiScope.PLATFORM_USERS_WRITE: "Deactivate users, end their sessions, and remove second factors.",
        ApiScope.PLATFORM_AUDIT_READ: "Read and export the log of the platform.",
        ApiScope.PLATFORM_INSTALLATION_READ: "Read the health and the settings of the installation.",
    }
)


class ApiScopeUnknown(Invalid):
    """This scope does not exist, or the token cannot have it. The documentation lists the scopes of the API."""

    oauth_error = "invalid_scope"


class ScopeInsufficient(Forbidden):
    """This token does not have the scopes that are needed here. Ask for a token that has them."""

    oauth_error = "insufficient_scope"
    audited = True

    def __init__(self, *scopes: str) -> None:
        """`scopes` are all that the request needs (RFC 6750 section 3.1)."""
        self.scopes = scopes
        super().__init__(f"This token does not have the scope {' '.join(scopes)}, which is needed here. Use a token that has it.")


def scope_of(capability: Capability, *, changes: bool) -> ApiScope | None:
    """Return the scope that a token needs for a route with this capability, or None if tokens with scopes cannot use the route.

    The area is the first part of the capability's name. Roles belong to the members.
    """
    area = capability.partition(".")[0].replace("roles", Area.MEMBERS)
    return find_scope(area, changes=changes)


def find_scope(area: str, *, changes: bool) -> ApiScope | None:
    """Return the scope to read or to change this area, or None if there is none."""
    name = f"{area}:{'write' if changes else 'read'}"
    return ApiScope(name) if name in _NAMES else None


_NAMES: Final = frozenset(ApiScope)


def parse_scopes(names: Iterable[str]) -> frozenset[ApiScope]:
    """Return the scopes with these names. Raises: ApiScopeUnknown."""
    distinct_names = frozenset(names)
    if not distinct_names <= _NAMES:
        raise ApiScopeUnknown
    return frozenset(ApiScope(name) for name in distinct_names)


def in_order(scopes: Iterable[ApiScope]) -> tuple[ApiScope, ...]:
    """Return the scopes in the order of `ApiScope`."""
    members = frozenset(scopes)
    return tuple(scope for scope in ApiScope if scope in members)
