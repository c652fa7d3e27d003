"""Every route with every caller: the statuses match the access matrix, and refused requests change nothing.

Where the role or the permission is not sufficient, exactly one audit entry says so (security L-5).
"""

import json
from collections.abc import AsyncIterator, Collection

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.kernel.roles import GRANTABLE, ROLES, Capability, Permission, rights_of
from entrypoints.http.edge.access.declaration import Access, access_of
from entrypoints.http.edge.access.effects import Programs
from tests.proof.access.calls import Request, call, prepare, routes, without_variant
from tests.proof.access.console import DONE
from tests.proof.access.effects.rules import HeldEffect
from tests.proof.access.refusals import decorator_refusal, refused_alike
from tests.proof.access.robots import Robot
from tests.proof.access.robots_table import ALL_ROBOTS
from tests.proof.access.state import changes_since, keys_of_tables, mark, state, undo
from tests.proof.access.table import (
    CODES,
    EXTERNAL_CLIENTS,
    ORG,
    PAGES_OF_ORG,
    PEOPLE,
    REQUESTS,
    TO_SIGN_IN,
    read_matrix,
    worth_trying,
)
from tests.proof.access.tokens_table import ALL_TOKENS
from tests.proof.access.world import KEYS, Caller, UsedToken, World
from tests.proof.test_every_endpoint import ENDPOINTS, unnamed
from tests.support.browser import SIGN_IN
from tests.support.builders import Answer, run_sql

pytestmark = pytest.mark.slow

TABLE = read_matrix()
PIECES = 8  # so that a test run's workers share the table


@pytest.mark.parametrize("piece", range(PIECES))
async def test_every_caller_gets_the_status_of_the_table(piece: int, app: QuartTrio, pool: Pool, world: World) -> None:
    wrong: list[str] = []
    repeated = refused_alike(app, TABLE, world.callers)
    for route in list(TABLE)[piece::PIECES]:
        wrong += [finding async for finding in findings(route, worth_trying(route) - repeated[route], app, pool, world)]
    assert not wrong, "\n".join(wrong)
    assert await state(pool) == world.state, "every route began in the same world"


async def findings(route: str, names: Collection[str], app: QuartTrio, pool: Pool, world: World) -> AsyncIterator[str]:
    """Yield a route's wrong answers to these callers, and changes by callers that it refused."""
    request, access = REQUESTS.get(route, Request()), access_of(dict(routes(app))[without_variant(route)])
    await run_sql(pool, "delete from rates")  # every route begins with full limits
    effect = HeldEffect(route, access, await keys_of_tables(pool), world.state)
    for name in sorted(names):
        caller, expected = world.callers[name], TABLE[route][name]
        await prepare(pool, request, caller)
        by_rule = name in REFUSED_BY_RULE.get(route, set())
        is_recorded = not route.startswith("GET") and (by_rule or rights_missing(access, caller, expected))
        if is_recorded:
            await run_sql(pool, "delete from rates")  # a caller may write twenty entries an hour
        before = await mark(pool) if request.setup_sql else 0
        answer = await call(app, route, request, caller)
        if finding := difference(answer, expected):
            yield f"{route} as {name}: {finding}"
        is_refused = answer.status >= 400 or expected == TO_SIGN_IN
        changes = await changes_since(pool, before)
        if not is_refused:
            effect.hold(caller, changes)
        else:
            new_rows = changes.got
            if caller.impersonated:  # requests during impersonation are always recorded
                new_rows = frozenset((table, row) for table, row in new_rows if '"impersonation.request"' not in row)
            entries = [json.loads(row) for table, row in new_rows if table == "audit_log" and '"access.refused"' in row]
            if [entry["success"] for entry in entries] != [False] * is_recorded:
                yield f"{route} as {name}: it was refused with {answer.status}, and recorded {len(entries)} times"
            if entries:
                new_rows = frozenset((table, row) for table, row in new_rows if '"access.refused"' not in row and table != "siem_queue")
            if route in LOGS_REFUSALS:
                new_rows = frozenset((table, row) for table, row in new_rows if table != "login_events")
            if new_rows or changes.lost:
                yield f"{route} as {name}: it was refused with {answer.status}, but changed {sorted(new_rows | changes.lost)}"
        if changes or before:
            await undo(pool)
    for finding in effect.findings():
        yield finding


def rights_missing(access: Access, caller: Caller, expected: str) -> bool:
    """Return whether the decorator refuses a member for the role, or a program for its rights."""
    if access.permission is not None:
        return caller.permissions is not None and access.permission not in caller.permissions
    if caller.robot is not None:
        return is_robot_refused(access, caller.robot, caller, expected)
    if caller.token is not None:
        return is_role_of_token_missing(access, caller.token, caller)
    has_credentials = caller.is_signed_in_browser if access.name == "member_page" else caller.session is not None
    if access.capability is None or not has_credentials or caller.is_application or caller.role is None:
        return False
    if access.capability.is_of_platform:
        return False  # no organization is concerned
    return access.capability not in rights_of(caller.role)


def is_robot_refused(access: Access, robot: Robot, caller: Caller, expected: str) -> bool:
    """Return whether the decorator refuses a service account in its own organization, which is active."""
    return access.name == "member" and robot.is_live and robot.org_id == caller.at.organization.id and expected == "403"


def is_role_of_token_missing(access: Access, token: UsedToken, caller: Caller) -> bool:
    """Return whether the decorator refuses a personal access token in its own organization because of the user's role."""
    if access.name != "member" or access.capability is None or not token.is_live or token.org_id != caller.at.organization.id:
        return False
    return caller.role is not None and access.capability not in rights_of(caller.role)


def difference(answer: Answer, expected: str) -> str | None:
    """Return how an answer differs from the table, or None."""
    code = answer.json["error_code"] if answer.status >= 400 and answer.headers["Content-Type"] == "application/json" else None
    location = answer.headers.get("Location", "")
    sent_to_sign_in = answer.status == 303 and (location.startswith(f"{SIGN_IN}?next=") or (location == SIGN_IN and expected == TO_SIGN_IN))
    if expected == DONE and not sent_to_sign_in and answer.status in (200, 303):
        return None
    if str(answer.status) == expected[:3] and code in (None, CODES.get(expected, code)) and sent_to_sign_in == (expected == TO_SIGN_IN):
        return None
    message = answer.json["error"] if code else location or answer.text[:200]
    return f"the table says {expected}, the response is {answer.status} {code or ''}: {message}"


# The table against the routes, their decorators and the inventory.

# Routes that record in the sign-in log why they refuse.
LOGS_REFUSALS = {
    "GET /auth/<provider:provider>/callback",
    "GET /auth/connections/<connection_id>/callback",
    "POST /auth/connections/<connection_id>/acs",
    "POST /auth/connections/<connection_id>/backchannel-logout",
    "POST /auth/connections/<connection_id>/slo",
}
# Routes that check an organization's state although it is not in the path, and where it comes from.
ORGANIZATION_NOT_IN_THE_PATH = {
    "POST /api/auth/refresh": "the context of the session (decision 48)",
    "POST /api/invitations/accept": "the invitation (decision 49)",
    "GET /app/invitations/accept": "the invitation",
    "POST /app/invitations/accept": "the invitation",
    "POST /auth/device/code": "the service (security T-5)",
    "POST /auth/token": "the context of the session, or the service",
    "POST /auth/par": "the service",
    "POST /auth/register": "the organization of the registration token",
    "GET /auth/authorize": "the service",
    "POST /auth/authorize": "the service",
    "POST /auth/device/verify": "the organization of the device",
    "GET /api/organizations/<org_slug>/services/<service_slug>/saml/login": "the service",
    **{
        f"{way} /saml/<org_slug>/<service_slug>/{step}": "the service, for all callers (decision 179)"
        for way, step in [("GET", "metadata"), ("GET", "sso"), ("POST", "sso"), ("GET", "authenticate"), ("GET", "slo"), ("POST", "slo")]
    },
}
# Routes that refuse callers that the decorator allows, depending on the resource.
REFUSES_INSIDE = {
    "POST /auth/device/code": "no API resource of an active organization admits the client (security #external-clients)",
    "POST /auth/par": "the same",
    "GET /api/user/devices/<device_id>": "a device of another user",
    "PATCH /api/user/devices/<device_id>": "a device of another user",
    "DELETE /api/user/devices/<device_id>": "a device of another user",
    "GET /app/account/devices/<device_id>": "a device of another user",
    "POST /app/account/devices/<device_id>/revoke": "a device of another user",
    "GET /api/privacy/export/<user_id>": "depends on the user (security Y-1)",
    "GET /api/organizations/<org_slug>/services/<service_slug>/saml/login": "users without access to the service (decision 177)",
    "DELETE /scim/v2/Groups/<group_id>": "directories cannot delete organizations (decision 123)",
    "DELETE /api/privacy/forget/<user_id>": "depends on the user, and on the owners of their organizations (security Y-2)",
    "DELETE /api/user": "owners and platform owners (security Y-3)",
    "POST /api/auth/reauthenticate": "accounts with a second factor, without its code",
    "POST /app/reauthenticate": "accounts with a second factor, without its code",
    "POST /app/account/delete": "owners (security Y-3)",
}

# Callers that the decorator allows, but a rule refuses for their rights (security R-1). The audit log has every refusal.
REFUSED_BY_RULE = {
    f"POST {ORG}/invitations#admin": {"admin", "admin-token"},
    f"POST {ORG}/invitations/bulk#admin": {"admin", "admin-token"},
    f"POST {ORG}/invitations/<invitation_id>/resend#admin": {"admin", "admin-token"},
    f"POST {ORG}/invitations/<invitation_id>/accept#admin": {"admin"},
    f"POST {ORG}/service-accounts#owner": {"admin"},
    f"POST {ORG}/service-accounts#granted": {"admin"},
}
# The same without an entry: a form answers with the refusal itself.
REFUSED_WITHOUT_ENTRY = {f"POST {PAGES_OF_ORG}/invitations/new#admin": {"admin-browser"}}
# Routes that refuse service accounts even if they are granted the capability.
ACTS_ON_THE_USER = {
    "GET /api/organizations/<org_slug>/services/<service_slug>/sign-in-preview": "shows a sign-in of the user",
    "POST /api/organizations/<org_slug>/services/<service_slug>/claims/preview": "shows a sign-in of the user",
    "POST /api/organizations/<org_slug>/smtp/test": "sends an email to the user",
    "POST /api/organizations/<org_slug>/connections/<connection_slug>/groups": "a member answers for the mapping",
    "DELETE /api/organizations/<org_slug>/connections/<connection_slug>/groups/<mapping_id>": "a member answers for the mapping",
    **{f"{method} /api/organizations/<org_slug>/groups/<group_id>/role": "a member answers for the role" for method in ("PUT", "DELETE")},
    **{
        f"{method} /api/{path}/<user_id>/recovery": "the issuer vouches for a person"
        for path in ("organizations/<org_slug>/users", "organizations/<org_slug>/members", "platform/users")
        for method in ("POST", "DELETE")
    },
}


# Routes without a decorator for credentials: they read the token themselves. Callers have none with the scope `openid`.
READS_THE_TOKEN_INSIDE = {"GET /auth/userinfo", "POST /auth/userinfo"}
# Routes that also accept our pages' cookie, which the inventory does not know.
BROWSERS_TOO = {"GET /api/organizations/{}/services/{}/saml/login": "decision 177"}
# The organization is a group that its directory cannot delete. It does not know other groups: 404.
REFUSED_TO_DIRECTORIES = {"DELETE /scim/v2/Groups/{}"}


async def test_no_grant_opens_routes_that_act_on_the_user(app: QuartTrio) -> None:
    assert ACTS_ON_THE_USER.keys() == {
        route
        for route, view in routes(app)
        if (access := access_of(view)).is_of_api
        and access.capability in GRANTABLE
        and access.row(route.partition(" ")[0]).programs is Programs.NONE
    }


async def test_owners_grant_what_routes_with_lasting_effects_need(app: QuartTrio) -> None:
    of_owners = {Capability.ORGANIZATION_OWN, Capability.SERVICE_ACCOUNTS_MANAGE, Capability.PLATFORM_OWN}
    of_people = {Capability.SIGN_IN_POLICY_MANAGE}
    to_leave = {Capability.ORGANIZATION_VIEW}  # ends the user's membership
    rules = [(access_of(view), route.partition(" ")[0]) for route, view in routes(app)]
    needed = {rule.capability for rule, method in rules if rule.is_of_api and rule.row(method).outlives and rule.capability is not None}
    assert needed - of_owners - of_people - to_leave == set(GRANTABLE)


async def test_every_route_is_in_the_table(app: QuartTrio) -> None:
    existing = {route for route, _ in routes(app)}
    with_row = {without_variant(route) for route in TABLE}
    missing, gone = sorted(existing - with_row), sorted(with_row - existing)
    assert not missing, f"These routes have no row in tests/proof/access/table.py, which says who may call what: {missing}"
    assert not gone, f"tests/proof/access/table.py has rows of routes that do not exist: {gone}"
    assert REQUESTS.keys() <= TABLE.keys(), "tests/proof/access/table.py has requests for routes that have no row"


async def test_the_table_agrees_with_the_decorators(app: QuartTrio, world: World) -> None:
    wrong, views = [], dict(routes(app))
    for way, row in TABLE.items():
        route = without_variant(way)
        for name, expected in row.items():
            refusal = decorator_refusal(route, access_of(views[route]), world.callers[name])
            if refusal is None and expected == "403*" and route in ORGANIZATION_NOT_IN_THE_PATH:
                continue
            if refusal is None and expected in ("401", "403") and route in REFUSES_INSIDE:
                continue
            if refusal is None and expected == "403" and name in REFUSED_BY_RULE.get(way, set()) | REFUSED_WITHOUT_ENTRY.get(way, set()):
                continue
            if refusal is None and expected[:3] in ("401", "403") and route in READS_THE_TOKEN_INSIDE:
                continue
            if (refusal or "") != (expected if expected in CODES else ""):
                wrong.append(f"{way} as {name}: the table says {expected}, its decorator {refusal or 'allows it'}")
    assert not wrong, "\n".join(wrong)


def test_the_table_agrees_with_the_inventory() -> None:
    """Compare the roles, and the rule that an organization must be active."""
    by_path = {
        unnamed(route): {caller: status for caller, status in row.items() if caller not in (*ALL_ROBOTS, *ALL_TOKENS, *EXTERNAL_CLIENTS)}
        for route, row in TABLE.items()
        if route == without_variant(route)
    }
    wrong = []
    for endpoint in ENDPOINTS:
        documented = endpoint.row
        name = f"{documented['method']} {unnamed(documented['path'])}"
        row = by_path.get(name)
        if row is None:
            continue  # the inventory has no method, or the route has no row, which another test finds
        allowed = {caller for caller, status in row.items() if status not in CODES}
        may_call: dict[str, bool] = {role: role in documented["roles"] for role in ROLES} if documented["roles"] else {}
        if documented["auth"] == "platform_owner_jwt":
            may_call = {caller: caller == "platform" for caller in row}
        elif documented["auth"] == "jwt":
            may_call |= {"anonymous": False, "browser": name in BROWSERS_TOO, "waiting": False}
        elif documented["auth"] == "preauth_jwt":
            may_call = {caller: caller == "waiting" for caller in row}
        elif documented["auth"] == "none":
            may_call["anonymous"] = True
        elif documented["auth"] == "billing_signature":
            may_call |= dict.fromkeys(row, True)
        elif documented["auth"] == "scim_token":
            may_call = dict.fromkeys(row, False) | {
                "directory": name not in REFUSED_TO_DIRECTORIES,
                "visiting-directory": True,
            }
        elif documented["auth"] is not None:
            kind, _, permission = documented["auth"].partition(":")
            assert kind == "api_key", f"unknown kind of credential: {kind}"
            may_call = dict.fromkeys(PEOPLE.values(), False) | {"suspended-key": False, "expired-key": False}
            may_call |= {name: Permission(permission) in KEYS[name] for name in ("key", "reading-key", "writing-key")}
        if documented["org_must_be_active"] and documented["auth"] == "jwt":
            may_call |= {"suspended": False, "pending": False}
        if documented["roles"] and documented["auth"] == "jwt":
            may_call |= dict.fromkeys(("stranger", "guest", "foreign", "platform"), False)
            may_call |= {caller: False for caller in row if caller.endswith("application")}
        wrong += [
            f"{name}: {caller} {'may' if expected else 'may not'}"
            for caller, expected in may_call.items()
            if (caller in allowed) != expected
        ]
    assert not wrong, f"The inventory differs: {wrong}"
