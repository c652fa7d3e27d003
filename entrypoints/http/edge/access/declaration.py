"""The access rule of a route, and its requirement on the caller."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, fields
from enum import Enum, auto
from functools import cache
from typing import Any, Final

from core.kernel import api_scopes, roles
from core.kernel.access import ApplicationTokens as ApplicationTokens
from core.kernel.access import EffectDemands, Requirement
from core.kernel.access import Restricted as Restricted
from core.kernel.rate_limits import Bucket
from entrypoints.http.edge.access import effects

View = Callable[..., Awaitable[Any]]

ACCESS_ATTRIBUTE: Final = "_access_rule"
SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})


class Credentials(Enum):
    """The credentials of a caller."""

    NONE = auto()
    ACCESS_TOKEN = auto()
    OPTIONAL_ACCESS_TOKEN = auto()  # it may be missing, but must be valid
    ACCESS_TOKEN_OR_COOKIE = auto()  # the session cookie of our pages is accepted, too
    PRE_AUTH_TOKEN = auto()  # of a pending sign-in
    COOKIE = auto()  # of a session on our pages
    API_KEY = auto()
    SCIM_TOKEN = auto()
    SETUP_COOKIE = auto()  # of a browser that opened a set-up link
    BILLING_SIGNATURE = auto()  # of the payment provider

    @property
    def scheme(self) -> str | None:
        """Return the security scheme in the API description, or None without credentials."""
        if self is Credentials.NONE:
            return None
        return self.name.lower() if self in _OWN_SCHEMES else "bearer"


_OWN_SCHEMES: Final = (
    Credentials.COOKIE,
    Credentials.API_KEY,
    Credentials.SCIM_TOKEN,
    Credentials.SETUP_COOKIE,
    Credentials.BILLING_SIGNATURE,
)


SMALL_BODY: Final = 4096  # bytes. Receiving and decoding it costs no more than taking a rate-limit token


class Taking(Enum):
    """When a request takes the tokens of its limits. If it is refused before, it takes them then, so 429 comes first."""

    AT_ONCE = auto()
    WITH_FIRST_QUERY = auto()  # in the round trip of the first reading, or before the first change
    IF_REFUSED = auto()  # not if it succeeds: also if the view declares that a sign-in failed (`limits.sign_in_failed`)


@dataclass(frozen=True, slots=True)
class Access:
    """The access rule of a route."""

    name: str
    credentials: Credentials = Credentials.NONE
    # The route's own limits, in addition to the limits of its path, before anything else. None: the
    # view decides which limit counts.
    limit: Bucket | tuple[Bucket, ...] | None = ()
    taking: Taking = Taking.AT_ONCE
    takes_late_up_to: int = SMALL_BODY  # bytes of the body. With a longer body, the request takes its tokens at once
    declared: effects.EffectRow | None = None  # by the route
    default: effects.EffectRow | None = None  # of a method that changes something, if the route declares no effect
    verified: bool = False  # requires a verified email address
    capability: roles.Capability | None = None  # required of a member in the path's organization
    inactive: bool = False  # the organization need not be active
    applications: ApplicationTokens = ApplicationTokens.NONE
    permission: roles.Permission | None = None  # required of an API key
    area: api_scopes.Area | None = None  # area of the required scope, for routes without a capability
    own_scope: str | None = None  # the scope of tokens that an application gets for itself
    restricted: Restricted = Restricted.NO

    @property
    def limits(self) -> tuple[Bucket, ...]:
        """Return the limits as a tuple."""
        return (self.limit,) if isinstance(self.limit, Bucket) else self.limit or ()

    @property
    def is_of_api(self) -> bool:
        """Return whether the route is part of our own API, which is a protected resource (RFC 9728)."""
        return self.credentials.scheme == "bearer" and self.credentials is not Credentials.PRE_AUTH_TOKEN

    @property
    def is_of_platform(self) -> bool:
        """Return whether only platform owners can use the route."""
        return self.name in ("platform_owner", "platform_page")

    def row(self, method: str) -> effects.EffectRow:
        """Return the requirements of the effect that a request with this method has."""
        row = self.declared or (effects.SHOWS if method in SAFE_METHODS else self.default)
        assert row is not None, "the application does not start with a route that does not declare its effect"
        return row

    def opens_to_service_accounts(self, method: str) -> bool:
        """Return whether a service account can use the route, at least if an owner granted it the capability by name."""
        row = self.row(method)
        if self.capability is None or row.programs is effects.Programs.NONE:
            return False
        return self.capability in roles.GRANTABLE or (row.programs is effects.Programs.ALL and not row.outlives)

    def opens_to_personal_tokens(self, method: str) -> bool:
        """Return whether a personal access token can use the route."""
        is_of_platform = self.capability is not None and self.capability.is_of_platform
        return self.row(method).programs is effects.Programs.ALL and not is_of_platform

    def requirement(self, method: str) -> Requirement:
        """Return the requirement on a caller who sends a request with this method.

        The challenge and the API description name its scope.
        """
        return _requirement(self, method)


@cache
def _requirement(access: Access, method: str) -> Requirement:
    row, changes, scope = access.row(method), method not in SAFE_METHODS, None
    if access.opens_to_service_accounts(method) or access.opens_to_personal_tokens(method):
        if access.area is not None:
            scope = api_scopes.find_scope(access.area, changes=changes)
        elif access.capability is not None:
            scope = api_scopes.scope_of(access.capability, changes=changes)
    return Requirement(
        capability=access.capability,
        scope=scope,
        inactive=access.inactive,
        needs_person=row.programs is not effects.Programs.ALL,
        applications=access.applications,
        restricted=access.restricted,
        is_of_platform=access.is_of_platform,
        is_verified=access.verified,
        **{field.name: getattr(row, field.name) for field in fields(EffectDemands)},
    )


def access_of(view: Callable[..., Any]) -> Access:
    """Return the access rule of a registered view.

    Raises: ValueError unless the view has a single access decorator, which is the outermost decorator.
    """
    rules_found: list[tuple[Callable[..., Any], Access]] = []
    layer: Callable[..., Any] | None = view
    while layer is not None:
        guarded, access = layer.__dict__.get(ACCESS_ATTRIBUTE, (None, None))
        if guarded is layer:
            rules_found.append((layer, access))
        layer = getattr(layer, "__wrapped__", None)
    if not rules_found:
        raise ValueError("it has no access decorator")
    if len(rules_found) > 1:
        raise ValueError("it has more than one access decorator")
    [(outermost, access)] = rules_found
    if outermost is not view:
        raise ValueError("its access decorator is not the outermost one")
    return access
