"""An organization that switches personal access tokens off refuses them on every route, and changes nothing (decision 290)."""

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from tests.proof.access.calls import Request, call, prepare
from tests.proof.access.state import changes_since, mark, undo
from tests.proof.access.table import REQUESTS, read_matrix
from tests.proof.access.tokens_table import ORG
from tests.proof.access.world import World
from tests.support.builders import run_sql

pytestmark = pytest.mark.slow


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
