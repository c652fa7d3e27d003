"""The changes that a stolen session leaves, and whether the lists in rows.py and rules.py are complete.

`test_matrix.py` calls every route as every kind of caller, and compares the route's effect with the changed rows.
"""

import re
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest
from quart_trio import QuartTrio

import entrypoints.http
from adapters.postgres.engine.pool import Pool
from core.kernel.policy import Policy
from entrypoints.http.edge.access.declaration import access_of
from entrypoints.http.edge.access.effects import Effect
from tests.proof.access.attempts import operation
from tests.proof.access.calls import Request, age_sessions, call, prepare, routes, without_variant
from tests.proof.access.console import DONE
from tests.proof.access.effects.rows import LISTS, MINE, NOT_COUNTED_COLUMNS, POWER, Kind, names_of, table_of
from tests.proof.access.effects.rules import BESIDES, OF_CALLERS, SHOWN_ELSEWHERE, HeldEffect
from tests.proof.access.state import changes_since, keys_of_tables, mark, state, undo
from tests.proof.access.table import REQUESTS, read_matrix
from tests.proof.access.world import World
from tests.support.builders import application, run_sql

TABLE = read_matrix()
ACCESS = {route: access_of(view) for route, view in routes(application())}
USERS: Final = ("owner", "platform", "admin", "member", "with-mfa", "stranger", "guest", "owner-application", "application")
BROWSERS: Final = ("browser", "platform-browser", "admin-browser", "browser-with-mfa", "stranger-browser", "suspended-browser")
# The tables with ways into an account.
WAYS_IN: Final = frozenset({*POWER["accounts and ways into them"].split(), "personal_tokens"})


async def test_every_table_is_classified_once(pool: Pool, world: World) -> None:
    rows = await run_sql(
        pool,
        """
        select table_name::text, array_agg(column_name::text) from information_schema.columns join information_schema.tables t
        using (table_schema, table_name)
        where table_schema = 'public' and table_type = 'BASE TABLE'
              and not exists (select from pg_class p where p.oid = quote_ident(t.table_name)::regclass and p.relispartition)
        group by 1""",
    )
    columns: dict[str, set[str]] = {table: set(names) for table, names in rows}
    names = [name for lists in LISTS.values() for name in names_of(lists)]
    assert {table_of(name) for name in names} == columns.keys(), "list the table in rows.py with the kind of its changes"
    whole = {name for name in names if name in columns}
    assert columns.keys() - whole == set(), "the table has a kind for the columns that no list names"
    assert [name for name, count in Counter(names).items() if count > 1] == []
    parts = {(table_of(name), name.partition(".")[2]) for name in [*names, *MINE] if "." in name}
    assert [f"{table}.{column}" for table, column in parts if column not in columns[table]] == []
    assert set(names_of(NOT_COUNTED_COLUMNS)) <= set().union(*columns.values())


def test_the_exceptions_are_routes() -> None:
    assert BESIDES.keys() <= ACCESS.keys()
    assert SHOWN_ELSEWHERE.keys() <= TABLE.keys()


def test_requests_send_every_field_where_one_of_them_could_have_power() -> None:
    sent: dict[str, set[str]] = {}
    for route in TABLE:
        request = REQUESTS.get(route, Request())
        image = {"image"} if request.file is not None else set()
        sent.setdefault(without_variant(route), set()).update(request.body or {}, request.form or {}, image)
    left_out = {}
    for route, access in ACCESS.items():
        weak = access.row(route.partition(" ")[0]).effect in (Effect.CHANGES, Effect.MINE, Effect.ENDS)
        if weak and access.credentials in OF_CALLERS and not route.startswith("GET") and (missing := fields_of(route) - sent[route]):
            left_out[route] = missing
    assert left_out == {}


def fields_of(route: str) -> set[str]:
    """Return the body's fields, in JSON or in a form."""
    contents = operation(route).get("requestBody", {}).get("content", {}).values()
    return {name for content in contents for name in content["schema"].get("properties", {})}


def signed_in() -> Iterator[tuple[str, str]]:
    """Yield every route that changes something for a signed-in user, and the name of a caller that it lets in."""
    for route, row in TABLE.items():
        access = ACCESS[without_variant(route)]
        candidates = BROWSERS if access.credentials.scheme == "cookie" or "#form" in route else USERS
        users = [name for name in candidates if row.get(name, "").startswith((DONE, "2", "3")) and not row[name].endswith("*")]
        if access.credentials in OF_CALLERS and users and (not route.startswith("GET") or access.row("GET").effect is Effect.PROTOCOL):
            yield route, users[0]


@pytest.mark.slow
@pytest.mark.parametrize("piece", range(4))
async def test_an_old_session_leaves_nothing_that_outlives_it(piece: int, app: QuartTrio, pool: Pool, world: World) -> None:
    """For any declared effect: after a recent sign-in, only own data without power; after a fresh sign-in, no way into an account."""
    wrong: list[str] = []
    keys, policy = await keys_of_tables(pool), Policy()
    for route, name in list(signed_in())[piece::4]:
        request, caller = REQUESTS.get(route, Request()), world.callers[name]
        for age in (policy.recent_sign_in_ttl, policy.fresh_sign_in_ttl):
            await run_sql(pool, "delete from rates")
            await prepare(pool, request, caller)
            await age_sessions(pool, caller, age + timedelta(seconds=1))
            before = await mark(pool)
            answer = await call(app, route, request, caller)
            held = HeldEffect(route, ACCESS[without_variant(route)], keys, world.state)
            if answer.status < 400:
                left = held.hold(caller, await changes_since(pool, before), is_old=age == policy.recent_sign_in_ttl)
                own = {change.name for change in left if change.kind is Kind.POWER and change.is_of(caller)}
                ways = {name for name in own - MINE if table_of(name) in WAYS_IN}
                wrong += [f"{route} as {name}, {age} after the sign-in: it changed {ways}"] if ways else []
            wrong += [f"{finding}, {age} after the sign-in" for finding in held.wrong_findings()]
            await undo(pool)
    assert not wrong, "\n".join(wrong)
    assert await state(pool) == world.state


# The requests that press buttons with their own names.
BUTTONS: Final = {
    "step": "POST /app/sign-in",  # says which fields the form has
    "action": "GET /app/organizations/<org_slug>/selected-people",
}


def test_requests_press_every_button() -> None:
    templates = Path(entrypoints.http.__path__[0], "templates").rglob("*.html")
    names = {name for template in templates for name in re.findall(r'<button[^>]* name="([^"]+)"', template.read_text())}
    assert names == BUTTONS.keys()
    assert set(BUTTONS.values()) <= TABLE.keys()
