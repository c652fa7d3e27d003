"""An organization's settings that close routes: no personal access tokens (decision 290), and hidden end users (decision 460).

No route opens while it is closed, and nothing changes.
"""

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.kernel.roles import Capability
from entrypoints.http.edge.access.declaration import access_of
from tests.proof.access.calls import Request, call, prepare, routes, without_variant
from tests.proof.access.state import changes_since, mark, undo
from tests.proof.access.table import REQUESTS, read_matrix
from tests.proof.access.tokens_table import ORG
from tests.proof.access.world import World
from tests.support.builders import application, run_sql

pytestmark = pytest.mark.slow

ACCESS = {route: access_of(view) for route, view in routes(application())}
# These routes need further capabilities, and name users.
FURTHER = {
    "GET /api/organizations/<org_slug>/analytics/recent-logins",
    "GET /api/organizations/<org_slug>/api-resources/<resource_id>/assignments",
    "GET /api/organizations/<org_slug>/api-resources/<resource_id>/groups",
    "GET /api/organizations/<org_slug>/api-resources/<resource_id>/external-clients/grants",
}
HIDE = "update organizations set members_see_end_users = false where id = %s"


async def test_no_route_opens_while_tokens_are_off(app: QuartTrio, pool: Pool, world: World) -> None:
    caller, wrong, tried = world.callers["owner-token"], [], 0
    for route, row in read_matrix().items():
        if not route.partition(" ")[2].startswith(ORG) or row["owner-token"] in ("401", "403"):
            continue
        request, tried = REQUESTS.get(route, Request()), tried + 1
        await prepare(pool, request, caller)
        await run_sql(pool, "update organizations set personal_tokens = false where id = %s", world.home.organization.id)
        before = await mark(pool)
        answer = await call(app, route, request, caller)
        changes = await changes_since(pool, before)
        if answer.status != 403 or "does not allow personal access tokens" not in answer.text or changes:
            wrong.append(f"{route}: {answer.status} {changes}")
        await undo(pool)
    assert not wrong, "\n".join(wrong)
    assert tried > 80


async def test_members_do_not_see_end_users_while_they_are_hidden(app: QuartTrio, pool: Pool, world: World) -> None:
    wrong, hidden = [], 0
    for route, row in read_matrix().items():
        access = ACCESS[without_variant(route)]
        if access.capability is not Capability.END_USERS_VIEW and without_variant(route) not in FURTHER:
            continue
        request = REQUESTS.get(route, Request())
        for name in ("member", "as-member", "with-mfa", "browser-with-mfa", "admin", "owner"):
            caller = world.callers[name]
            if row.get(name, "401") in ("401", "303*"):
                continue
            hidden += name not in ("admin", "owner")
            await prepare(pool, request, caller)
            await run_sql(pool, HIDE, world.home.organization.id)
            status = (await call(app, route, request, caller)).status
            expected = row[name] if name in ("admin", "owner") else "403"
            if str(status) != expected:
                wrong.append(f"{route} of {name}: {status}")
            await undo(pool)
    assert not wrong, "\n".join(wrong)
    assert hidden > 10


@pytest.mark.parametrize("hidden", [False, True])
async def test_pages_that_name_them_beside_other_things_leave_them_out(app: QuartTrio, pool: Pool, world: World, hidden: bool) -> None:
    caller = world.callers["browser-with-mfa"]
    if hidden:
        await run_sql(pool, HIDE, world.home.organization.id)
    for page, part in (
        ("api-resources/<resource_id>/access", "Assigned users"),
        ("api-resources/<resource_id>/external-clients", "Users who connected a client"),
        ("analytics", "Latest sign-ins"),
    ):
        answer = await call(app, f"GET /app/organizations/<org_slug>/{page}", Request(), caller)
        assert (answer.status, part in answer.text) == (200, not hidden), page
    await undo(pool)
