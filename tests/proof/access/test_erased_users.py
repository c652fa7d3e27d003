"""Nothing is stored about an erased user: no attribute, group, role, assignment, subscription or block.

Requests that end a single user work.
"""

import json
from dataclasses import replace
from typing import Any, Final

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.kernel.values import new_id
from core.privacy import personal_data
from ports import Ports
from tests.proof.access.calls import Request, call, prepare, without_variant
from tests.proof.access.state import changes_since, mark, undo
from tests.proof.access.table import REQUESTS, read_matrix
from tests.proof.access.world import World
from tests.support.builders import run_sql

pytestmark = pytest.mark.slow

CALLERS: Final = ("owner", "key", "directory")
# Request records
RECORDS: Final = frozenset({"audit_log", "audit_totals", "events", "siem_queue", "webhook_deliveries"})
KEPT: Final = frozenset({"subscriptions"})  # a service's books


@pytest.mark.parametrize("name", ["further", "end-user"])
async def test_no_request_stores_anything_about_an_erased_user(name: str, app: QuartTrio, pool: Pool, ports: Ports, world: World) -> None:
    """The requests name the user in the path, by id in the body, or by the address that the account has now."""
    user, wrong, calls = world.home.people[name], list[str](), 0
    now = ports.clock.now()
    await run_sql(pool, "update users set closed_at = %s, deactivated_at = %s, erase_at = %s where id = %s", now, now, now, user.id)
    await personal_data.erase_due(ports, new_id())
    [(email,)] = await run_sql(pool, "select email from users where id = %s and anonymized_at is not null", user.id)
    start = await mark(pool)
    for route in read_matrix():
        if route.startswith(("GET", "DELETE")) or not without_variant(route).split()[1].startswith(("/api/", "/scim/")):
            continue
        for caller in (world.callers[each] for each in CALLERS):
            request = REQUESTS.get(route, Request())
            named = replace(request, things={**request.things, "user_id": str(user.id)}, body=name_user(request.body, str(user.id), email))
            if "<user_id>" not in route and named.body == request.body:
                continue
            calls += 1
            await run_sql(pool, "delete from rates")
            await prepare(pool, named, caller)
            before = await mark(pool)
            answer = await call(app, route, named, caller)
            stored = await changes_since(pool, before)
            tables = {table for table, row in stored.got if str(user.id) in json.loads(row).values()} - RECORDS - KEPT
            if tables:
                wrong.append(f"{route} as {caller.name}: {answer.status}, {sorted(tables)}")
            await undo(pool, start)
    await undo(pool)
    assert not wrong, "\n".join(wrong)
    assert calls > 50


def name_user(body: Any, user_id: str, email: str) -> Any:
    """Return the body with this user in place of every user's address and id."""
    match body:
        case list():
            return [name_user(item, user_id, email) for item in body]
        case dict():
            return {key: name_user(item, user_id, email) for key, item in body.items()}
        case str() if "@" in body or body.endswith("email}"):
            return email
        case str() if body.endswith("user_id}"):
            return user_id
    return body
