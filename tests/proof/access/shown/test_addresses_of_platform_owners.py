"""From where a platform owner acts stays in the platform's log (security #addresses-of-platform-owners).

A platform owner sends every route's request, also while acting as every kind of user, and so does a platform program. Platform owners who
are members, or use an application, send it, too. Address and agent are unique. Afterwards only rows for platform owners have them, and
records about the own account, which organizations read without them.
"""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, Final

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from entrypoints.http.edge.access.declaration import Credentials, access_of
from tests.proof.access.calls import Request, call, prepare, routes, without_variant
from tests.proof.access.state import changes_since, mark, undo
from tests.proof.access.table import REQUESTS, read_matrix
from tests.proof.access.world import Caller, World
from tests.support.builders import run_sql

pytestmark = pytest.mark.slow

PIECES: Final = 8  # so that a test run's workers share the routes
PEER: Final = "198.51.100.77"
AGENT: Final = "OperatorBrowser/4711"
ACTING: Final = ("platform", "platform-granted", "platform-browser", "as-owner", "as-admin", "as-member", "impersonating-browser")
OF_OWN: Final = ("owner", "application", "admin-browser")  # they become platform owners before they act
# No other routes know platform owners.
OF_USERS: Final = (Credentials.ACCESS_TOKEN, Credentials.ACCESS_TOKEN_OR_COOKIE, Credentials.COOKIE)
# The logs about an account. Only platform owners read the addresses in entries that are not the user's (`by_user`).
OF_PLATFORM: Final = frozenset({"mfa_events", "privacy_log"})


@pytest.mark.parametrize("piece", range(PIECES))
async def test_no_act_of_a_platform_owner_leaves_an_address(piece: int, app: QuartTrio, pool: Pool, world: World) -> None:
    found, acted = list[str](), 0
    of_rules = dict(routes(app))
    credentials = {route: access_of(of_rules[without_variant(route)]).credentials for route in read_matrix()}
    for route in [each for each in credentials if credentials[each] in OF_USERS][piece::PIECES]:
        await run_sql(pool, "delete from rates")
        for name in _callers(route, credentials[route]):
            async for finding in _act(app, pool, world, route, world.callers[name]):
                acted += 1
                found += [finding] if finding else []
    assert not found, "\n".join(found)
    assert acted > 0


def _callers(route: str, credentials: Credentials) -> list[str]:
    """Return the callers whose credentials the route reads. A platform owner who only reads writes nothing."""
    reads = route.startswith("GET")
    in_browser = [name for name in (*ACTING, *OF_OWN) if name.endswith("browser")]
    names = in_browser if credentials is Credentials.COOKIE else [name for name in (*ACTING, *OF_OWN) if name not in in_browser]
    return [name for name in names if not (reads and (name in OF_OWN or name.startswith("platform")))]


async def _act(app: QuartTrio, pool: Pool, world: World, route: str, caller: Caller) -> AsyncIterator[str]:
    """Send the request, and yield every changed row with the address or the agent. A row that only the platform reads is an empty text."""
    request, before, accounts = REQUESTS.get(route, Request()), await mark(pool), {_account_of(world.callers["platform"])}
    if caller.name in OF_OWN:
        accounts.add(_account_of(caller))
        await run_sql(pool, "update users set is_platform_owner = true where id = %s", _account_of(caller))
    await prepare(pool, request, caller)
    sent = replace(request, headers={**request.headers, "User-Agent": AGENT})
    await call(app, route, sent, caller, peer=PEER)
    for table, row in (await changes_since(pool, before)).got:
        if PEER in row or AGENT in row:
            yield "" if _is_hidden(table, json.loads(row), accounts) else f"{route} as {caller.name}: {table} {row}"
    await undo(pool, before)


def _account_of(caller: Caller) -> str:
    assert caller.account is not None
    return str(caller.account.id)


def _is_hidden(table: str, row: dict[str, Any], accounts: set[str]) -> bool:
    """Return whether only platform owners read the row, or it is about a platform owner's own account."""
    return table in OF_PLATFORM or (table == "audit_log" and row["org_id"] is None) or row.get("user_id") in accounts
