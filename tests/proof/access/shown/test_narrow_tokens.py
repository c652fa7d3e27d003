"""The owner's personal access tokens with a single scope, at every route that this scope reads.

Such a token sees no more than a member with the scope's rights: an answer names nothing by the owner's further rights.
"""

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.kernel.api_scopes import ApiScope, scope_of
from core.kernel.roles import CUSTOMIZABLE
from entrypoints.http.edge.access.declaration import access_of
from tests.proof.access.calls import Request, call, prepare, routes, without_variant
from tests.proof.access.state import mark, undo
from tests.proof.access.table import REQUESTS
from tests.proof.access.test_custom_roles import OWN_ROLE, TABLE, give_role
from tests.proof.access.world import Caller, World
from tests.support.builders import Answer, run_sql

pytestmark = pytest.mark.slow

SCOPES: Final = {scope_of(capability, changes=False) for capability in CUSTOMIZABLE} - {None}


async def test_a_token_sees_no_more_than_a_member_with_the_rights_of_its_scope(app: QuartTrio, pool: Pool, world: World) -> None:
    wrong, compared = list[str](), 0
    for scope in sorted(str(scope) for scope in SCOPES):
        capabilities = [capability for capability in CUSTOMIZABLE if scope_of(capability, changes=False) == scope]
        await give_role(pool, world.home, "member", OWN_ROLE, capabilities)
        await run_sql(pool, "update personal_tokens set scopes = %s where name like '%% narrow-token'", [scope])
        base = await mark(pool)
        for route in reading(app, ApiScope(scope)):
            of_member = await answer_of(route, world.callers["member"], app, pool, base)
            of_token = await answer_of(route, world.callers["narrow-token"], app, pool, base)
            compared += of_token.status == 200
            more = parts(of_token) - parts(of_member) if of_token.status == 200 else set[str]()
            if of_token.status not in (200, of_member.status) or more:
                wrong.append(f"{route} with {scope}: {of_token.status} instead of {of_member.status}, {sorted(more)[:5]}")
        await undo(pool)
    assert not wrong, "\n".join(wrong)
    assert compared >= 50


def reading(app: QuartTrio, scope: ApiScope) -> Iterator[str]:
    """Yield the table's rows for routes that show what the scope reads."""
    views = dict(routes(app))
    for route in TABLE:
        access = access_of(views[without_variant(route)])
        if route.startswith("GET") and access.name == "member" and access.requirement("GET").scope == scope:
            yield route


async def answer_of(route: str, caller: Caller, app: QuartTrio, pool: Pool, start: int) -> Answer:
    request = REQUESTS.get(route, Request())
    await run_sql(pool, "delete from rates")
    await prepare(pool, request, caller)
    answer = await call(app, route, request, caller)
    await undo(pool, start)
    return answer


def parts(answer: Answer) -> set[str]:
    """Return an answer's values with their places in it, or its lines if it is no JSON. Lists have no order here."""
    try:
        return set(_parts(json.loads(answer.text), ""))
    except ValueError:
        return set(answer.text.splitlines())


def _parts(value: Any, place: str) -> Iterator[str]:
    match value:
        case dict():
            for name, item in value.items():
                yield from _parts(item, f"{place}.{name}")
        case list():
            for item in value:
                yield from _parts(item, f"{place}[]")
        case None:
            return
        case _:
            yield f"{place}={value}"
