"""Two tenants, and nothing of the first for anybody of the second: in no answer, whatever ids they send, and nothing of it changes.

What is the first tenant's is found out by the database: the rows that would not be there without it, and every text in them that is not
also elsewhere. So a new table is covered as soon as the tenants of world.py have rows in it.
"""

import base64
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from adapters.postgres.pool import Pool
from entrypoints.http.app import describe
from tests.access.calls import Request, call, prepare
from tests.access.state import State, put_back, state
from tests.access.table import REQUESTS, read_matrix
from tests.access.world import World
from tests.builders import Answer, Api

pytestmark = pytest.mark.slow

# Who tries to learn something of the home organization: everybody of the rival one, and people of neither.
SPIES = ("foreign-owner", "foreign-admin", "foreign-member", "foreign-as-owner", "foreign-stranger", "foreign-anonymous")

TABLE = read_matrix()
INTERFACE = describe()["paths"]
# After all others what was changed is put back before the next attempt.
LOOKS_ONLY = frozenset(route for route in TABLE if route.startswith("GET") and route != "GET /auth/verify-email")

_ID = re.compile(r"[0-9a-f]{8}-.*")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d.*")
_TOKEN = re.compile(r"eyJ[\w-]+\.(eyJ[\w-]+)\.[\w-]+")


def texts(value: Any) -> Iterator[str]:
    """Every text in a JSON value but moments; bytes as their hexadecimal digits."""
    match value:
        case dict():
            for item in value.values():
                yield from texts(item)
        case list():
            for item in value:
                yield from texts(item)
        case str() if not _TIME.fullmatch(value):
            yield value.removeprefix("\\x").lower()


@dataclass(frozen=True, slots=True)
class Secrets:
    """What is the home organization's alone: its rows, the texts in them by the column that they stand in, and what no row holds."""

    rows: State
    texts: Mapping[str, str]
    unwritten: Mapping[str, str]  # passwords and tokens, of which there are only hashes

    @classmethod
    def of(cls, world: World) -> "Secrets":
        rows = world.state - world.state_without_home
        known = {text for _, row in world.state_without_home for text in texts(json.loads(row))}
        found = {
            text: f"{table}.{column}"
            for table, row in sorted(rows)
            for column, value in json.loads(row).items()
            for text in texts(value)
            if text not in known
        }
        unwritten = {text.lower(): name for name, text in world.home.things.items() if text.lower() not in known | found.keys()}
        return cls(rows, found, unwritten)

    def found_in(self, said: str, *sent: str) -> list[str]:
        """What of it was said. What was sent may come back, with the texts that are part of it: it tells the sender nothing."""
        said = heard = said.lower()
        for one in sent:
            heard = heard.replace(one.lower(), "")
        echoed = " ".join(sent).lower()
        all_of_it = [*self.texts.items(), *self.unwritten.items()]
        return [f"{column}: {text}" for text, column in all_of_it if text in (heard if text in echoed else said)]

    def ids(self) -> list[str]:
        return [text for text in self.texts if _ID.fullmatch(text)]

    def of_each_kind(self) -> list[str]:
        """One text of each column."""
        return list({column: text for text, column in self.texts.items()}.values())


def everything_said(answer: Answer) -> str:
    """Body and headers, and what the tokens in them say."""
    said = f"{answer.text} {answer.headers}"
    return said + " ".join(base64.urlsafe_b64decode(found + "==").decode() for found in _TOKEN.findall(said))


@dataclass(frozen=True, slots=True)
class Attempt:
    """A request, and what of the home organization is sent with it."""

    request: Request
    sent: tuple[str, ...] = ()
    where: str = "nothing of it"


def attempts(route: str, spy: str, world: World, secrets: Secrets) -> Iterator[Attempt]:
    """The request as it should be, and then with what is the home organization's in every place that takes a text.

    Who comes furthest, the owner, tries every id and a text of every kind; the others what has a name among the things, of which a request
    to the home organization would be made. Nobody sends what is a secret by itself, such as the token of an invitation.
    """
    plain = REQUESTS.get(route, Request())
    yield Attempt(plain)
    variables = re.findall(r"<([a-z_]+)>", route)
    if variables:
        theirs = {name: world.home.things.get(name, world.home.things["org_id"]) for name in variables}
        yield Attempt(replace(plain, things={**plain.things, **theirs}), tuple(theirs.values()), "all of the path")
    named = {name: text for name, text in world.home.things.items() if text in secrets.texts}
    yield Attempt(smuggling(route, plain, named), tuple(named.values()), "fields that do not exist")
    # Of somebody who belongs to both, too: what is done to this person in one organization must not be done in the other.
    values = [str(world.both.id), *named.values()]
    if spy == "foreign-owner":
        values = list(dict.fromkeys([*values, *secrets.ids(), *secrets.of_each_kind()]))
    for value in values:
        if _ID.fullmatch(value) or value == world.home.things["org_slug"]:
            for name in variables:
                yield Attempt(replace(plain, things={**plain.things, name: value}), (value,), f"<{name}>")
        for name in fields_of_query(route):
            yield Attempt(replace(plain, query={**plain.query, name: value}), (value,), f"?{name}=")
        for name in fields_of_body(route):
            yield Attempt(replace(plain, body={**(plain.body or {}), name: value}), (value,), f"body.{name}")
        for name in plain.form or ():
            yield Attempt(replace(plain, form={**(plain.form or {}), name: value}), (value,), f"form.{name}")


def smuggling(route: str, plain: Request, named: Mapping[str, str]) -> Request:
    """The request with fields that it does not have: what stands in the path, or in the token, is what counts (security.md T-1, N-5)."""
    fields = {
        "id": named["user_id"],
        "organization_id": named["org_id"],
        "organization": named["org_slug"],
        "email": named["own_email"],
        **named,
    }
    smuggled = {name: text for name, text in fields.items() if name not in {*fields_of_query(route), *fields_of_body(route)}}
    body = plain.body if route.startswith("GET") or plain.form else {**smuggled, **(plain.body or {})}
    form = None if plain.form is None else {**smuggled, **plain.form}
    return replace(plain, query={**smuggled, **plain.query}, body=body, form=form)


def fields_of_query(route: str) -> list[str]:
    return [field["name"] for field in operation(route).get("parameters", ()) if field["in"] == "query" and takes_text(field["schema"])]


def fields_of_body(route: str) -> list[str]:
    content = operation(route).get("requestBody", {}).get("content", {}).get("application/json", {})
    return [name for name, schema in content.get("schema", {}).get("properties", {}).items() if takes_text(schema)]


def operation(route: str) -> dict[str, Any]:
    method, path = route.split()
    found: dict[str, Any] = INTERFACE[re.sub(r"<([a-z_]+)>", r"{\1}", path)][method.lower()]
    return found


def takes_text(schema: Mapping[str, Any]) -> bool:
    return any(kind.get("type") == "string" and "enum" not in kind for kind in (schema, *schema.get("anyOf", ())))


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of an attempt. `after` is None where nothing was to be expected of it but an answer."""

    attempt: Attempt
    answer: Answer
    after: State | None


async def try_all(route: str, spy: str, world: World, secrets: Secrets, before: State, api: Api, pool: Pool) -> list[Tried]:
    """All attempts of a spy, each in the same world."""
    tried = []
    for attempt in attempts(route, spy, world, secrets):
        answer = await call(api, route, attempt.request, world.callers[spy])
        after = await state(pool) if answer.status < 400 and route not in LOOKS_ONLY else None
        if after is not None:
            await put_back(pool, after, before)
        tried.append(Tried(attempt, answer, after))
    return tried


@pytest.mark.parametrize("route", TABLE)
async def test_nothing_of_another_tenant_comes_out_or_changes(route: str, api: Api, pool: Pool, world: World) -> None:
    secrets = Secrets.of(world)
    leaks: list[str] = []
    for spy in SPIES:
        await prepare(pool, REQUESTS.get(route, Request()), world.callers[spy])
        before = await state(pool)
        for tried in await try_all(route, spy, world, secrets, before, api, pool):
            sent = tried.attempt.sent
            found = [f"the answer {tried.answer.status} says {text}" for text in secrets.found_in(everything_said(tried.answer), *sent)]
            if tried.after is not None:
                found += done_to_home(secrets, before, tried.after, *sent)
            leaks += [f"{spy}, with {' '.join(sent)} in {tried.attempt.where}: {what}" for what in found]
        after = await state(pool)
        leaks += [f"{spy}, who was refused or only looked: {what}" for what in done_to_home(secrets, before, after)]
        await put_back(pool, after, world.state)
    assert not leaks, f"{route}\n" + "\n".join(leaks[:20])


def done_to_home(secrets: Secrets, before: State, after: State, *sent: str) -> list[str]:
    """What was done to the home organization, or written about it elsewhere."""
    lost = [f"{table} lost {row}" for table, row in secrets.rows - after]
    return lost + [
        f"{table} got {row}" for table, row in after - before if secrets.found_in(row, *sent) and not is_failed_login(table, row)
    ]


def is_failed_login(table: str, row: str) -> bool:
    """Anybody may guess at a password, and whose it is not is on record."""
    return table == "login_events" and json.loads(row)["success"] is False


# Where the interface does tell that something exists by which the caller named it.
TOLD_ON_PURPOSE = {
    "<org_slug>": "403, not 404 (decisions, point 17)",
    "all of the path": "the slug is part of it",
    "POST /api/auth/register body.email": "409 (identity.md section 4.1)",
    "PATCH /api/user body.email": "an address belongs to one account",
    "POST /api/organizations body.slug": "a slug belongs to one organization (security.md T-4)",
}


@pytest.mark.parametrize("route", TABLE)
async def test_the_answers_are_those_of_a_world_without_the_other_tenant(route: str, api: Api, pool: Pool, world: World) -> None:
    """Totals, order, messages, and whether something is refused: nothing tells a tenant of another one (security.md B-5, T-2)."""
    secrets = Secrets.of(world)
    different: list[str] = []
    for spy in ("foreign-owner", "foreign-anonymous"):
        if TABLE[route]["anonymous"] == "401" and spy == "foreign-anonymous":
            continue
        heard = []
        for there in (world.state_without_home, world.state):
            await put_back(pool, await state(pool), there)
            await prepare(pool, REQUESTS.get(route, Request()), world.callers[spy])
            heard.append(await try_all(route, spy, world, secrets, await state(pool), api, pool))
        for alone, beside in zip(*heard, strict=True):
            where = beside.attempt.where
            if outcome(route, alone.answer) != outcome(route, beside.answer) and not TOLD_ON_PURPOSE.keys() & {where, f"{route} {where}"}:
                sent = " ".join(beside.attempt.sent)
                different.append(f"{spy}, with {sent} in {where}: {outcome(route, alone.answer)} became {outcome(route, beside.answer)}")
    assert not different, f"{route}\n" + "\n".join(different[:20])


def outcome(route: str, answer: Answer) -> tuple[object, ...]:
    """What an answer tells, without what is different every time."""
    if answer.headers.get("Content-Type") != "application/json":
        return (answer.status,)
    if answer.status >= 400:
        return answer.status, answer.json["error"], answer.code
    return (answer.status, answer.text) if route in LOOKS_ONLY else (answer.status, sorted(answer.json))
