"""The scopes for our own API, `<base URL>/api`. A scope lets a token read or change one API area (RFC 6749 section 3.3).

Tokens for service accounts and personal access tokens have scopes. The token of a user's own session has no scopes,
because it may do everything that the user may do. A scope never gives a right. A scope only narrows the rights of the
token's owner, which every request reads from the database.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final, Self

from core.kernel import errors
from core.kernel.roles import Capability


class Area(StrEnum):
    """An API part with its own scopes."""

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
    SIGN_INS = "sign_ins"
    ANALYTICS = "analytics"
    ACCOUNT = "account"
    PLATFORM_ORGANIZATIONS = "platform_organizations"
    PLATFORM_USERS = "platform_users"
    PLATFORM_AUDIT = "platform_audit"
    PLATFORM_SIGN_INS = "platform_sign_ins"
    PLATFORM_INSTALLATION = "platform_installation"

    @property
    def is_of_platform(self) -> bool:
        return self.startswith("platform_")


class ApiScope(StrEnum):
    """A scope for our own API. A `write` scope does not include the area's `read` scope."""

    description: str

    def __new__(cls, value: str, description: str = "") -> Self:
        member = str.__new__(cls, value)
        member._value_, member.description = value, description
        return member

    ORGANIZATION_READ = "organization:read", "Read the organization and its branding."
    ORGANIZATION_WRITE = "organization:write", "Change the organization and its branding."
    MEMBERS_READ = "members:read", "Read members, groups, invitations and blocked users."
    MEMBERS_WRITE = "members:write", "Invite, change and remove members, and change groups."
    SERVICES_READ = "services:read", "Read applications, their access settings, plans and SAML settings."
    SERVICES_WRITE = "services:write", "Create and change applications and their SAML settings."
    RESOURCES_READ = "resources:read", "Read API resources."
    RESOURCES_WRITE = "resources:write", "Create, change and delete API resources."
    API_KEYS_READ = "api_keys:read", "Read API keys, without their secrets."
    API_KEYS_WRITE = "api_keys:write", "Create and delete API keys."
    END_USERS_READ = "end_users:read", "Read end users, assignments and subscriptions."
    END_USERS_WRITE = "end_users:write", "Assign users to applications, give them roles there, block them there, and end their sessions."
    BILLING_WRITE = "billing:write", "Create, change and delete plans."
    WEBHOOKS_READ = "webhooks:read", "Read webhooks and their deliveries."
    WEBHOOKS_WRITE = "webhooks:write", "Create, change, test and delete webhooks, and repeat deliveries."
    INTEGRATIONS_READ = "integrations:read", "Read the settings of directory, SIEM, domain and mail server."
    INTEGRATIONS_WRITE = "integrations:write", "Change the settings of directory, SIEM, domain and mail server."
    AUDIT_READ = "audit:read", "Read and export the audit log."
    SIGN_INS_READ = "sign_ins:read", "Read and export the sign-in log."
    ANALYTICS_READ = "analytics:read", "Read figures about sign-ins."
    ACCOUNT_READ = "account:read", "Read your own account: profile, devices, consents, applications and organizations."
    ACCOUNT_WRITE = "account:write", "Change your own account: rename and revoke devices, and withdraw consents."
    PLATFORM_ORGANIZATIONS_READ = "platform_organizations:read", "Read all organizations and tiers."
    PLATFORM_ORGANIZATIONS_WRITE = (
        "platform_organizations:write",
        "Approve, reject, suspend and activate organizations, and change their tiers.",
    )
    PLATFORM_USERS_READ = "platform_users:read", "Read all users, their second factors and logs, and the platform owners."
    PLATFORM_USERS_WRITE = "platform_users:write", "Deactivate users, end their sessions, and remove second factors."
    PLATFORM_AUDIT_READ = "platform_audit:read", "Read and export the log of the platform."
    PLATFORM_SIGN_INS_READ = "platform_sign_ins:read", "Read and export the sign-in log of the platform."
    PLATFORM_INSTALLATION_READ = "platform_installation:read", "Read the health and the settings of the installation."

    @property
    def area(self) -> Area:
        return Area(self.partition(":")[0])


class ApiScopeUnknown(errors.Invalid):
    """This scope does not exist, or the token cannot have it. The documentation lists the scopes of the API."""

    oauth_error = "invalid_scope"


class ScopeInsufficient(errors.Forbidden):
    """This token does not have the scopes that are needed here. Ask for a token that has them."""

    oauth_error = "insufficient_scope"
    audited = True

    def __init__(self, *scopes: str) -> None:
        """`scopes` are all that the request needs (RFC 6750 section 3.1)."""
        self.scopes = scopes
        super().__init__(f"This token does not have the scope {' '.join(scopes)}, which is needed here. Use a token that has it.")


def scope_of(capability: Capability, *, changes: bool) -> ApiScope | None:
    """Return the scope that a token needs for a route with this capability, or None if tokens with scopes cannot use the route.

    The area is the first part of the capability's name, unless `_AREAS` names another area.
    """
    name = capability.partition(".")[0]
    return find_scope(_AREAS.get(name, name), changes=changes)


def find_scope(area: str, *, changes: bool) -> ApiScope | None:
    """Return the scope to read or to change this area, or None if there is none."""
    name = f"{area}:{'write' if changes else 'read'}"
    return ApiScope(name) if name in _NAMES else None


_NAMES: Final = frozenset(ApiScope)
# Roles belong to the members, and application roles to their users.
_AREAS: Final = {"roles": Area.MEMBERS, "groups": Area.MEMBERS, "service_roles": Area.END_USERS}


def parse_scopes(names: Iterable[str]) -> frozenset[ApiScope]:
    """Return the scopes with these names."""
    distinct_names = frozenset(names)
    if not distinct_names <= _NAMES:
        raise ApiScopeUnknown
    return frozenset(ApiScope(name) for name in distinct_names)


def in_order(scopes: Iterable[ApiScope]) -> tuple[ApiScope, ...]:
    """Return the scopes in the order that `ApiScope` declares."""
    members = frozenset(scopes)
    return tuple(scope for scope in ApiScope if scope in members)
