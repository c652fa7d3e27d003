"""The callers that a route's access decorator refuses, and the refusals that repeat each other."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from inspect import getclosurevars

from quart_trio import QuartTrio

from core.kernel.api_scopes import find_scope, scope_of
from core.kernel.callers import OrganizationStatus
from core.kernel.roles import GRANTABLE, rights_of
from entrypoints.http.edge.access.declaration import Access, ApplicationTokens, Credentials, access_of
from entrypoints.http.edge.access.effects import Programs
from tests.proof.access.calls import routes, without_variant
from tests.proof.access.console import CONSOLE
from tests.proof.access.robots import Robot
from tests.proof.access.table import NO_ACCESS_TOKEN, TO_SIGN_IN
from tests.proof.access.world import Caller, UsedToken


def refused_alike(app: QuartTrio, table: Iterable[str], callers: Mapping[str, Caller]) -> dict[str, frozenset[str]]:
    """Return per route the names of callers that repeat another route's refusal.

    The decorator refuses them before a handler reads the request. It is every view's outermost function (`access_of`). It knows its rule,
    how it authenticates and whether the method changes something; in the path, it knows only the organization. Limits are another step. So
    all callers try the first route of a kind, and the refused callers take turns on the other routes. Some callers are refused at all
    such rules, whatever their capability, permission and area. They try a single route for all these rules.
    """
    views = dict(routes(app))
    refused: dict[str, frozenset[str]] = {}
    kinds: dict[str, object] = {}  # by route
    wide_kinds: dict[str, object] = {}  # the same without the right that the rule asks for
    refused_by_all: dict[object, frozenset[str]] = {}  # by wide kind
    for route in table:
        view = views[without_variant(route)]
        access = access_of(view)
        rest = getclosurevars(view).nonlocals["steps"].authenticate, route.startswith("GET"), "<org_slug>" in route
        refused[route] = frozenset(
            name for name, caller in callers.items() if decorator_refusal(without_variant(route), access, caller) is not None
        )
        kinds[route] = replace(access, limit=()), rest
        wide: object = replace(access, limit=(), capability=None, permission=None, area=None), rest
        wide_kinds[route] = wide
        refused_by_all[wide] = refused_by_all.get(wide, refused[route]) & refused[route]
    tried, repeated = set[object](), dict[str, frozenset[str]]()
    for number, route in enumerate(refused):
        kind, wide, names = kinds[route], wide_kinds[route], sorted(refused[route])
        known = refused[route] if kind in tried else refused_by_all[wide] if wide in tried else frozenset()
        repeated[route] = known - {names[number % len(names)]} if names else known
        tried |= {kind, wide}
    return repeated


def decorator_refusal(route: str, access: Access, caller: Caller) -> str | None:
    """Return the cell for a refusal by the access decorator, or None if it allows the caller."""
    row = access.row(route.partition(" ")[0])
    if access.credentials in (Credentials.NONE, Credentials.BILLING_SIGNATURE):  # the caller is in the request, which any caller can send
        return None
    if access.credentials is Credentials.SETUP_COOKIE:
        return None if caller.setup is not None else "401"
    if access.name in ("page_session", "sign_in_session", *CONSOLE) and not caller.is_signed_in_browser:
        return TO_SIGN_IN
    if access.name == "sign_in_session":
        return None
    if access.name == "page_session":
        return "403" if caller.impersonated and row.outlives else None
    if access.name == "platform_page":
        return None if caller.is_platform_owner else "403"
    if access.name == "member_page" and caller.role is None:
        return None  # the page does not exist for them
    if access.credentials is Credentials.ACCESS_TOKEN_OR_COOKIE and caller.cookie is not None:
        return None if caller.is_signed_in_browser else "401"
    if access.credentials is Credentials.SCIM_TOKEN:
        if caller.directory_of is None:
            return "401"
        return None if caller.directory_of.organization.status is OrganizationStatus.ACTIVE else "403*"
    if access.permission is not None:
        if caller.permissions is None or caller.key_of is None:
            return "401"
        if access.permission not in caller.permissions:
            return "403"
        return None if caller.key_of.organization.status is OrganizationStatus.ACTIVE else "403*"
    if caller.directory is not None and access.credentials.scheme == "bearer":
        return NO_ACCESS_TOKEN
    if caller.is_external and access.credentials.scheme == "bearer":
        return "401"
    if caller.robot is not None and access.credentials.scheme == "bearer":
        return robot_refusal(route, access, caller.robot, caller)
    if caller.token is not None and access.credentials.scheme == "bearer":
        return token_refusal(route, access, caller.token, caller)
    if access.name == "pre_auth":
        return None if caller.pre_auth is not None else "401"
    if caller.session is None and access.name != "member_page":  # optional credentials must be valid if they are sent
        return None if access.credentials is Credentials.OPTIONAL_ACCESS_TOKEN and caller.pre_auth is None else "401"
    if caller.is_application and access.applications is ApplicationTokens.NONE:
        return "403"
    if access.name == "platform_owner":
        return None if caller.is_platform_owner else "403"
    if access.capability is not None:
        if caller.role is None or access.capability not in rights_of(caller.role):
            return "403"
        if caller.at.organization.status is not OrganizationStatus.ACTIVE and not access.inactive:
            return "403*"
    return "403" if caller.impersonated and row.outlives else None


def robot_refusal(route: str, access: Access, robot: Robot, caller: Caller) -> str | None:
    """Return the cell for refusing a service account, or None if the decorator allows it."""
    if not robot.is_live or access.name == "pre_auth":
        return "401"
    capability, organization = access.capability, caller.at.organization
    if access.name not in ("member", "platform_owner") or capability is None:
        return "403"
    if access.name == "platform_owner":
        if robot.org_id is not None:
            return "403"
    elif robot.role is None or robot.org_id != organization.id or capability not in rights_of(robot.role):
        return "403"
    elif organization.status is not OrganizationStatus.ACTIVE and not access.inactive:
        return "403*"
    row = access.row(route.partition(" ")[0])
    if row.programs is Programs.NONE:
        return "403"
    if (row.programs is not Programs.ALL or row.outlives) and capability not in robot.granted & GRANTABLE.keys():
        return "403"
    return None if scope_of(capability, changes=not route.startswith("GET")) in robot.scopes else "403"


def token_refusal(route: str, access: Access, token: UsedToken, caller: Caller) -> str | None:
    """Return the cell for refusing a personal access token, or None if the decorator allows it."""
    if access.name == "pre_auth":
        return NO_ACCESS_TOKEN
    if not token.is_live:
        return "401"
    changes, organization = not route.startswith("GET"), caller.at.organization
    if access.name == "member" and access.capability is not None:
        if token.org_id != organization.id or caller.role is None or access.capability not in rights_of(caller.role):
            return "403"
        if organization.status is not OrganizationStatus.ACTIVE and not access.inactive:
            return "403*"
        scope = scope_of(access.capability, changes=changes)
    elif token.org_id is None and access.area is not None:
        scope = find_scope(access.area, changes=changes)
    else:
        return "403"
    return "403" if access.row(route.partition(" ")[0]).programs is not Programs.ALL or scope not in token.scopes else None
