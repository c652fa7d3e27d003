"""Values and rules of OpenID Connect: scopes, claims and tokens (OpenID Connect Core 1.0)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, Self
from uuid import UUID

from core.accounts.model import profiles
from core.applications.model.plans import Entitlement
from core.kernel.callers import ServiceContext
from core.kernel.proofs import Acr, Proofs
from core.kernel.roles import RoleName
from core.kernel.values import Email, base64url, digest, is_printable

USERINFO_PATH: Final = "/auth/userinfo"
CLAIMS_AUDIENCE: Final = f"{USERINFO_PATH}/claims"  # with the base URL, the audience of tokens in `_claim_sources`
API_PATH: Final = "/api"  # with the base URL, our own API's identifier and the audience for its tokens


class Scope(StrEnum):
    """The scopes that have a meaning here, in the order in which responses list them."""

    OPENID = "openid"
    PROFILE = "profile"
    EMAIL = "email"
    OFFLINE_ACCESS = "offline_access"
    ORG = "org"
    ROLES = "roles"
    PERMISSIONS = "permissions"
    GROUPS = "groups"


# The claims that a scope gives (OpenID Connect Core section 5.4).
CLAIMS_OF_SCOPE: Final[Mapping[Scope, tuple[str, ...]]] = MappingProxyType(
    {
        Scope.PROFILE: ("name", "picture", "locale", "zoneinfo", *profiles.DETAILS, "updated_at"),
        Scope.EMAIL: ("email", "email_verified"),
        Scope.ORG: ("org", "org_id", "org_name", "plan", "subscription_status", "features"),
        Scope.ROLES: ("roles",),
        Scope.PERMISSIONS: ("permissions",),
        Scope.GROUPS: ("groups",),
    }
)
USER_CLAIMS: Final = frozenset(name for names in CLAIMS_OF_SCOPE.values() for name in names)
SESSION_EXPIRY: Final = "session_expiry"  # when the application must end its own session (IPSIE SL1); in ID tokens only
# The claims that say how, where and when the user authenticated. ID tokens always have them.
PROTOCOL_CLAIMS: Final = ("iss", "sub", "aud", "exp", "iat", "auth_time", "nonce", "acr", "amr", "azp", "at_hash", "sid")


@dataclass(frozen=True, slots=True)
class RequestedClaims:
    """The names of user claims in the parameter `claims`, for the ID token and for the userinfo endpoint."""

    id_token: tuple[str, ...] = ()
    userinfo: tuple[str, ...] = ()


NO_CLAIMS: Final = RequestedClaims()


@dataclass(frozen=True, slots=True)
class ResourceGrant:
    """An application's access to an API resource in its organization: the granted scopes for this API.

    `token_seconds` is the lifetime of its access tokens. It is None if the API resource was stopped or
    deleted, or if the application or its user may not use it now.
    """

    id: UUID  # of the API resource
    scope: tuple[str, ...]
    token_seconds: int | None


@dataclass(frozen=True, slots=True)
class OpenIdGrant:
    """The scopes and claims that an application was granted, at the platform and at an API resource.

    `scope` and `claims` are empty without the scope `openid`. `resource` is the audience of its access
    tokens, or None for the userinfo endpoint. With `api`, it is the identifier of the API resource. `asked`
    are all scopes of the authorization request, or None if there was no request.
    """

    scope: tuple[Scope, ...]
    claims: RequestedClaims = NO_CLAIMS
    resource: str | None = None
    api: ResourceGrant | None = None
    asked: tuple[str, ...] | None = None
    is_narrowed: bool = False  # from a grant with `openid`
    acr: tuple[Acr, ...] = ()  # the request asked for any of these classes; empty if it asked for none

    @property
    def consent_scopes(self) -> frozenset[Scope]:
        """The OpenID Connect scopes that the user agrees to: in the grant, and for the claims that it names."""
        return frozenset(self.scope) | scopes_of((*self.claims.id_token, *self.claims.userinfo))

    @property
    def shows_email(self) -> bool:
        """Whether access tokens have the email address: with the scope `email`, or without OpenID Connect."""
        return Scope.EMAIL in self.scope or not (self.scope or self.is_narrowed)

    def shows_email_to(self, service: ServiceContext) -> bool:
        """Return whether the application sees the email address. External clients need the scope: the consent shows no more."""
        return self.shows_email if not service.is_external else Scope.EMAIL in self.scope

    @property
    def names(self) -> tuple[str, ...]:
        """All granted scopes."""
        return self.scope if self.api is None else (*self.scope, *self.api.scope)

    @property
    def token_scope(self) -> tuple[str, ...]:
        """The scopes in access tokens. Tokens for an API resource have only its own scopes."""
        return self.scope if self.api is None else self.api.scope

    @property
    def is_of_openid_or_api(self) -> bool:
        """Whether the application got scopes of OpenID Connect, or access to an API resource. Without either, only `asked` counts."""
        return bool(self.scope) or self.api is not None

    @property
    def scope_text(self) -> str:
        return " ".join(self.names)

    def narrow(self, names: Collection[str] | None) -> OpenIdGrant:
        """Return the grant with only the scopes that are in `names` too. None leaves it as it is."""
        if names is None:
            return self
        api = self.api and replace(self.api, scope=tuple(name for name in self.api.scope if name in names))
        is_narrowed = self.is_narrowed or bool(self.scope)
        return replace(self, scope=tuple(name for name in self.scope if name in names), api=api, is_narrowed=is_narrowed)

    def id_token_claims(self, *, of_scopes: bool) -> frozenset[str]:
        """Return the user claims in an ID token: claims requested by name and, if `of_scopes`, claims in granted scopes."""
        return frozenset(self.claims.id_token) | (claims_of(self.scope) if of_scopes else frozenset())

    @property
    def userinfo_claims(self) -> frozenset[str]:
        return claims_of(self.scope) | frozenset(self.claims.userinfo)


NO_GRANT: Final = OpenIdGrant(())


@dataclass(frozen=True, slots=True)
class GroupFact:
    """A group of the application's organization that the user belongs to."""

    id: UUID
    name: str
    external_id: str | None = None  # of the directory
    is_assigned: bool = True  # the group is assigned to the application


@dataclass(frozen=True, slots=True, kw_only=True)
class FurtherFacts:
    """The facts for claims that only some applications need. They are read for these only.

    `document` is the claims document of the application (`claim_rules`), or None if it has none. `attributes` has the
    user's attributes in the organization by name, also attributes from groups. `directory` has the values of its
    directory, by SCIM name.
    """

    document: Mapping[str, Any] | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    directory: Mapping[str, Any] = field(default_factory=dict)
    further_roles: tuple[str, ...] = ()  # of the organization, beside `UserFacts.role`
    app_roles: tuple[str, ...] = ()  # of the application
    permissions: tuple[str, ...] = ()
    groups: tuple[GroupFact, ...] = ()


NO_FURTHER_FACTS: Final = FurtherFacts()


@dataclass(frozen=True, slots=True, kw_only=True)
class UserFacts:
    """The facts about a user that claims are made of, as they are now.

    The organization is that of the application. `role` is None if the user is not a member there.
    """

    email: Email
    email_verified: bool
    profile: profiles.Profile = profiles.NO_PROFILE
    updated_at: datetime | None = None  # UTC; of the profile
    org: str = ""
    org_id: UUID | None = None
    org_name: str = ""
    role: RoleName | None = None
    entitlement: Entitlement
    user_id: UUID | None = None
    scopes_in_id_token: bool = True  # whether the application wants the claims of scopes in its ID tokens
    further: FurtherFacts = NO_FURTHER_FACTS
    origin_org_id: UUID | None = None  # the organization that created the account

    def seen_by(self, restricted_to: UUID | None) -> Self:
        """Return the facts that an application sees in a session with this restriction, if any (docs/adr/0047).

        The organization's provider could sign in as a linked user, and agree to all scopes. So it learns only the names of an account
        that another organization, or the user, has created.
        """
        if restricted_to in (None, self.origin_org_id):
            return self
        return replace(self, profile=self.profile.only_names())

    @property
    def roles(self) -> tuple[str, ...]:
        """The user's own role in the organization, then further roles, then the application's roles."""
        own = () if self.role is None else (self.role,)
        return tuple(dict.fromkeys((*own, *self.further.further_roles, *self.further.app_roles)))

    def claims(self, names: frozenset[str]) -> dict[str, Any]:
        """Return the claims with these names, by the standard names. `claim_rules` builds the claims of an application.

        Claims without a value are left out (OpenID Connect Core section 5.3.2).
        """
        values: dict[str, Any] = {
            "name": self.profile.name,
            "picture": self.profile.picture,
            "locale": self.profile.locale,
            "zoneinfo": self.profile.zoneinfo,
            **_given_and_family_name(self.profile),
            **self.profile.details,
            "updated_at": None if self.updated_at is None else int(self.updated_at.timestamp()),
            "email": self.email,
            "email_verified": self.email_verified,
            "org": self.org or None,
            "org_id": None if self.org_id is None else str(self.org_id),
            "org_name": self.org_name or None,
            "plan": self.entitlement.plan,
            "subscription_status": self.entitlement.status,
            "features": None if self.entitlement.features is None else list(self.entitlement.features),
            "roles": list(self.roles),
            "permissions": list(self.further.permissions),
            "groups": [group.name for group in self.further.groups],
        }
        return {name: value for name, value in values.items() if name in names and value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class IdToken:
    """The contents of an ID token (OpenID Connect Core section 2). Times are UTC."""

    client_id: str
    user_id: UUID
    session_id: UUID
    issued_at: datetime
    expires_at: datetime
    proofs: Proofs
    acr: Acr
    nonce: str | None
    access_token: str | None  # for `at_hash`; None in a preview
    session_expiry: datetime | None  # None if the application did not ask for it
    claims: Mapping[str, Any]  # about the user


# The member of `events` in a logout token.
LOGOUT_EVENT: Final = "http://schemas.openid.net/event/backchannel-logout"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogoutToken:
    """The contents of a logout token (Back-Channel Logout section 2.4). Times are UTC."""

    id: UUID
    client_id: str
    user_id: UUID
    session_id: UUID
    issued_at: datetime
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class IdTokenHint:
    """An ID token that a client sends back to name a user and a session. It proves nothing about who sends it."""

    client_id: str
    user_id: UUID
    session_id: UUID


def parse_scope(text: str | None) -> tuple[Scope, ...]:
    """Return the known scopes in a scope parameter. Unknown scopes are ignored (OpenID Connect Core section 3.1.2.1)."""
    names = frozenset((text or "").split(" "))
    return tuple(scope for scope in Scope if scope in names)


def split_scope(text: str | None) -> tuple[str, ...]:
    """Return the names in a scope parameter (RFC 6749 section 3.3)."""
    return tuple(name for name in (text or "").split(" ") if name)


def asked_scopes(text: str | None) -> tuple[str, ...]:
    """Return the distinct names in a scope parameter, without names that no scope can have (RFC 6749 section 3.3)."""
    return tuple(dict.fromkeys(name for name in split_scope(text) if is_printable(name)))


def in_order(scopes: Iterable[Scope]) -> tuple[Scope, ...]:
    """Return the scopes without repetitions, in the order of `Scope`."""
    members = frozenset(scopes)
    return tuple(scope for scope in Scope if scope in members)


def claims_of(scopes: Iterable[Scope]) -> frozenset[str]:
    """Return the names of the user claims that these scopes give."""
    return frozenset(name for scope in scopes for name in CLAIMS_OF_SCOPE.get(scope, ()))


def scopes_of(names: Iterable[str]) -> frozenset[Scope]:
    """Return the scopes that give the claims with these names."""
    distinct_names = frozenset(names)
    return frozenset(scope for scope, claims in CLAIMS_OF_SCOPE.items() if not distinct_names.isdisjoint(claims))


def at_hash(access_token: str) -> str:
    """Return the hash that binds an ID token to an access token (OpenID Connect Core section 3.1.3.6)."""
    return base64url(digest(access_token)[:16])


def _given_and_family_name(profile: profiles.Profile) -> dict[str, str | None]:
    """Return the two claims. If the user has set neither, the last word of the name is the family name."""
    if profile.given_name or profile.family_name:
        return {"given_name": profile.given_name, "family_name": profile.family_name}
    given_name, _, family_name = (profile.name or "").rpartition(" ")
    return {"given_name": given_name or profile.name, "family_name": family_name if given_name else None}
