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

from adapters.postgres.engine.pool import Pool
from entrypoints.http.app import describe
from tests.proof.access.calls import Request, call, filled, in_any_way, prepare
from tests.proof.access.state import State, put_back, state
from tests.proof.access.table import CODES, REQUESTS, read_matrix
from tests.proof.access.world import SLUGS, World, reason_of
from tests.support.builders import Answer, Api
from tests.support.scim import SCIM_JSON

pytestmark = pytest.mark.slow

# Who tries to learn something of the home organization, everybody and everything of the rival one, and people of neither; and who of the
# table it is, but for the organization.
SPIES = {
    "foreign-owner": "owner",
    "foreign-admin": "admin",
    "foreign-member": "member",
    "foreign-as-owner": "as-owner",
    "foreign-stranger": "stranger",
    "foreign-anonymous": "anonymous",
    "foreign-application": "application",
    "foreign-key": "key",
    "foreign-directory": "directory",
    "foreign-waiting": "waiting",
    "foreign-browser": "browser",
}

TABLE = read_matrix()
DESCRIPTION = describe()
INTERFACE = DESCRIPTION["paths"]
# Who tries everything there is,
THOROUGH = ("foreign-owner", "foreign-key", "foreign-browser", "foreign-directory")
# and who is answered what they would be answered if there were no home organization, with the right to most, or with none.
COMPARED = (*THOROUGH, "foreign-anonymous")
# After all others what was changed is put back before the next attempt.
LOOKS_ONLY = frozenset(route for route in TABLE if route.startswith("GET") and route != "GET /auth/verify-email")

Schema = Mapping[str, Any]  # of JSON

# Logs, and whatever people do not choose to have.
LEFT_BEHIND = {
    "webhook_deliveries",
    "audit_log",
    "events",
    "login_events",
    "mfa_events",
    "privacy_log",
    "sessions",
    "devices",
    "identities",
    "passkeys",
}

_ID = re.compile(r"[0-9a-f]{8}-.*")
# What a request refers to things by. Other fields are not tried with everything: they hold what anybody may think of. The tokens of a form
# and of a device refer to nothing but who it is that sends them.
_REFERENCE = re.compile(r"(^|[_.])(id|slug|email|(?<!form_)(?<!device_)token|domain|domains|value|userName)$")
_DRAWN = re.compile(r"&(state|nonce|code_challenge)=[A-Za-z0-9_-]{43}(?=&|$)")  # by lot, each time that a browser is sent to a provider
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
        # Six digits stand in many a number; and what the platform notes for itself is no tenant's, not even about that tenant.
        unwritten = {text: name for text, name in unwritten.items() if not text.isdecimal()} | dict.fromkeys(
            map(reason_of, SLUGS), "reason"
        )
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
        """Of things, all; of what people leave behind themselves one of each column is enough (`of_each_kind`)."""
        return [text for text, column in self.texts.items() if _ID.fullmatch(text) and column.partition(".")[0] not in LEFT_BEHIND]

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

    def __str__(self) -> str:
        return f"with {' '.join(self.sent)} in {self.where}"


def attempts(route: str, spy: str, world: World, secrets: Secrets) -> Iterator[Attempt]:
    """The request as it should be, and then with what is the home organization's in every place that takes a text.

    Who comes furthest, the owner and the key, try every id and a text of every kind; the others what has a name among the things, of which
    a request to the home organization would be made. Nobody sends what is a secret by itself, such as the token of an invitation.
    """
    plain = REQUESTS.get(route, Request())
    yield Attempt(plain)
    variables = re.findall(r"<([a-z_]+)>", route)
    if variables:
        theirs = {name: filled(plain.things.get(name, f"{{{name}}}"), world.home.things) for name in variables}
        yield Attempt(replace(plain, things={**plain.things, **theirs}), tuple(theirs.values()), "all of the path")
    named = {name: text for name, text in world.home.things.items() if text in secrets.texts}
    yield Attempt(smuggling(route, plain, named), tuple(named.values()), "fields that do not exist")
    if is_turned_away(route, spy):
        return
    # Of somebody who belongs to both, too: what is done to this person in one organization must not be done in the other.
    values = [str(world.both.id), *named.values()]
    if spy in THOROUGH:
        values = list(dict.fromkeys([*values, *secrets.ids(), *secrets.of_each_kind()]))
    slugs = {text for name, text in named.items() if name.endswith("_slug")} | {named["org_id"], named["service_id"]}
    few = {named[name] for name in ("org_slug", "own_email", "user_id", "plan_id")}
    for value in values:
        for name in variables:
            if value in slugs if name.endswith("_slug") else _ID.fullmatch(value):
                where = f"<{name}> of both" if value == str(world.both.id) else f"<{name}>"
                yield Attempt(replace(plain, things={**plain.things, name: value}), (value,), where)
        for name in fields_of_query(route, value):
            yield Attempt(replace(plain, query={**plain.query, name: value}), (value,), f"?{name}=")
        for where, body in bodies(route, plain.body or {}, value):
            if value in few or _REFERENCE.search(where):
                yield Attempt(replace(plain, body=body), (value,), f"body.{where}")
        for name in plain.form or ():
            if value in few or _REFERENCE.search(name):
                yield Attempt(replace(plain, form={**(plain.form or {}), name: value}), (value,), f"form.{name}")


def is_turned_away(route: str, spy: str) -> bool:
    """Whether the spy comes no further than the door, or is at a door that lets everybody in alike."""
    is_open = "security" not in operation(route)
    knocks = {"foreign-owner", "foreign-anonymous"} | ({"foreign-browser"} if " /app/sign-" in route else set())
    return TABLE[route][SPIES[spy]] in CODES or (is_open and spy not in knocks)


def smuggling(route: str, plain: Request, named: Mapping[str, str]) -> Request:
    """The request with fields that it does not have: what stands in the path, or in the token, is what counts (security.md T-1, N-5)."""
    fields = {
        "id": named["user_id"],
        "organization_id": named["org_id"],
        "organization": named["org_slug"],
        "email": named["own_email"],
        **named,
    }
    known = {field["name"] for field in operation(route).get("parameters", ())} | fields_of_body(route).keys()
    smuggled = {name: text for name, text in fields.items() if name not in known}
    body = plain.body if route.startswith("GET") or plain.form else {**smuggled, **(plain.body or {})}
    form = None if plain.form is None else {**smuggled, **plain.form}
    return replace(plain, query={**smuggled, **plain.query}, body=body, form=form)


def fields_of_query(route: str, value: str) -> list[str]:
    return [field["name"] for field in operation(route).get("parameters", ()) if field["in"] == "query" and takes(field["schema"], value)]


def fields_of_body(route: str) -> Mapping[str, Schema]:
    content = operation(route).get("requestBody", {}).get("content", {}).get("application/json", {})
    found: Mapping[str, Schema] = content.get("schema", {}).get("properties", {})
    return found


def bodies(route: str, plain: Mapping[str, Any], value: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The body with the value in each of its places, also those in lists, and where that is."""
    for name, schema in fields_of_body(route).items():
        if takes(schema, value):
            yield name, {**plain, name: value}
        for items in (kind["items"] for kind in kinds(schema) if kind.get("type") == "array"):
            if takes(items, value):
                yield name, {**plain, name: [value]}
            for kind in kinds(items):
                for field, inner in kind.get("properties", {}).items():
                    if takes(inner, value):
                        yield f"{name}.{field}", {**plain, name: [{**plain[name][0], field: value}]}


def takes(schema: Schema, value: str) -> bool:
    """Whether such a text may stand there."""
    unfit = {"date", "date-time"} if _ID.fullmatch(value) else {"date", "date-time", "uuid"}
    return any(kind.get("type") == "string" and "enum" not in kind and kind.get("format") not in unfit for kind in kinds(schema))


def kinds(schema: Schema) -> list[Schema]:
    """What a schema allows, its references followed."""
    if "$ref" in schema:
        schema = DESCRIPTION["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return [schema, *(kind for one in schema.get("anyOf", ()) for kind in kinds(one))]


def operation(route: str) -> dict[str, Any]:
    method, path = in_any_way(route).split()
    found: dict[str, Any] = INTERFACE[re.sub(r"<(?:[a-z]+:)?([a-z_]+)>", r"{\1}", path)][method.lower()]
    return found


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


# Where the interface does tell that something exists by which the caller named it.
TOLD_ON_PURPOSE = {
    "<org_slug>": "403, not 404 (decisions, point 17)",
    "all of the path": "the slug is part of it",
    "POST /api/auth/register body.email": "409 (identity.md section 4.1)",
    "PATCH /api/user body.email": "an address belongs to one account",
    "POST /api/organizations body.slug": "a slug belongs to one organization (security.md T-4)",
    "PATCH /api/service/users/<user_id> body.email": "an address belongs to one account",
    "POST /api/service/subscriptions body.plan_id": "403, not 404, for another service's plan (identity.md section 4.5; security.md B-5)",
    "PATCH /api/service/subscriptions/<user_id> body.plan_id": "the same",
    "<device_id>": "403, not 404, for another user's device (identity.md section 4.3; security.md B-5)",
    "POST /scim/v2/Users body.userName": "409 (security.md C-2)",
    "PUT /scim/v2/Users/<user_id> body.userName": "an address belongs to one account",
    "GET /auth/<provider:provider> ?client_id=": "a client id that somebody has is one that a visitor of that application has seen",
    "GET /auth/<provider:provider> ?org=": "which of the two there is not (decisions, point 86)",
    "POST /auth/device/code body.org": "which of the two there is not (decisions, point 86)",
    "POST /app/account/email form.email": "an address belongs to one account",
    "DELETE /api/privacy/forget/<user_id> <user_id> of both": "only who owns all organizations of a person may (identity.md section 4.7)",
}
# Where it tells more of what the caller named,
GIVEN_ON_PURPOSE = {
    "POST /api/auth/lookup-email body.email": "where the people of a proved domain sign in (decisions, point 212; security.md B-4)",
    "POST /api/service/users body.email": "whose address it is, without any right over the account (security.md K-3)",
    "GET /auth/<provider:provider> ?client_id=": "by what the provider knows the service, and for which scopes, as every visitor is told",
}
# and where it notes that.
NOTED_ON_PURPOSE = {
    "POST /api/auth/register body.org_slug": "the mail has the name, logo and colour of any active organization (security.md E-1)",
    "POST /api/auth/forgot-password body.org_slug": "the same",
}
# What of the home organization changes by what a route does, by the route and the table.
CHANGED_ON_PURPOSE = {
    ("GET /auth/<provider:provider>", "provider_states"): "where this browser goes on: what it has sent, whatever that is",
    ("DELETE /api/privacy/forget/<user_id>", "invitations"): "those of a forgotten address end (security.md Y-2)",
    ("DELETE /api/privacy/forget/<user_id>", "audit_log"): "and what was written of them forgets the address, too",
    ("DELETE /api/privacy/forget/<user_id>", "audit_totals"): "the same",
    ("DELETE /api/privacy/forget/<user_id>", "events"): "the same",
    ("DELETE /api/privacy/forget/<user_id>", "siem_queue"): "what is new in the log is forwarded",
    ("DELETE /api/privacy/forget/<user_id>", "webhook_deliveries"): "the same",
}


@pytest.mark.parametrize("route", TABLE)
async def test_nothing_of_another_tenant_comes_out_or_changes(route: str, api: Api, pool: Pool, world: World) -> None:
    """Nor do totals, order, messages, or whether something is refused tell a tenant of another one (security.md B-5, T-2)."""
    secrets = Secrets.of(world)
    leaks: list[str] = []
    for spy in SPIES:
        await prepare(pool, REQUESTS.get(route, Request()), world.callers[spy])
        before = await state(pool)
        beside = await try_all(route, spy, world, secrets, before, api, pool)
        leaks += [f"{spy}, {one.attempt}: {what}" for one in beside for what in leaks_of(route, one, secrets, before)]
        after = await state(pool)
        done = lost_by_home(route, secrets, after) + written_of_home(route, secrets, before, after)
        leaks += [f"{spy}, who was refused or only looked: {what}" for what in done]
        if spy in COMPARED and (spy == "foreign-owner" or not is_turned_away(route, spy)):
            await put_back(pool, after, world.state_without_home)
            await prepare(pool, REQUESTS.get(route, Request()), world.callers[spy])
            alone = await try_all(route, spy, world, secrets, await state(pool), api, pool)
            leaks += [f"{spy}, {one.attempt}: {what}" for one, other in zip(alone, beside, strict=True) for what in told(route, one, other)]
            after = await state(pool)
        await put_back(pool, after, world.state)
    assert not leaks, f"{route}\n" + "\n".join(leaks[:20])


def leaks_of(route: str, tried: Tried, secrets: Secrets, before: State) -> Iterator[str]:
    """What of the home organization came out by this attempt, and what became of it."""
    sent, where = tried.attempt.sent, f"{in_any_way(route)} {tried.attempt.where}"
    if where not in GIVEN_ON_PURPOSE:
        for text in secrets.found_in(everything_said(tried.answer), *sent):
            yield f"the answer {tried.answer.status} says {text}"
    if tried.after is not None:
        yield from lost_by_home(route, secrets, tried.after)
        if where not in NOTED_ON_PURPOSE:
            yield from written_of_home(route, secrets, before, tried.after, *sent)


def told(route: str, alone: Tried, beside: Tried) -> Iterator[str]:
    """What the answer tells by being another one than without the home organization."""
    where = beside.attempt.where
    was, is_ = outcome(route, alone.answer), outcome(route, beside.answer)
    if was != is_ and not TOLD_ON_PURPOSE.keys() & {where, f"{in_any_way(route)} {where}"}:
        yield f"{was} became {is_}"


def lost_by_home(route: str, secrets: Secrets, after: State) -> list[str]:
    """What is not there any more of the home organization, or not as it was."""
    return [f"{table} lost {row}" for table, row in secrets.rows - after if (in_any_way(route), table) not in CHANGED_ON_PURPOSE]


def written_of_home(route: str, secrets: Secrets, before: State, after: State, *sent: str) -> list[str]:
    """What was written with something of the home organization in it."""
    return [
        f"{table} got {row}"
        for table, row in after - before
        if (in_any_way(route), table) not in CHANGED_ON_PURPOSE and secrets.found_in(row, *sent) and not is_of_the_platform(table, row)
    ]


def is_of_the_platform(table: str, row: str) -> bool:
    """Anybody may guess at a password, and whose it is not is on record; what somebody asks for as somebody else is in the platform's log,
    with what it names, and in no organization's (security.md I-5)."""
    written = json.loads(row)
    if table in ("audit_log", "events"):
        return "impersonation.request" in (written.get("action"), written.get("name")) and written["org_id"] is None
    return table == "login_events" and written["success"] is False


def outcome(route: str, answer: Answer) -> tuple[object, ...]:
    """What an answer tells, without what is different every time."""
    if answer.headers.get("Content-Type") == SCIM_JSON:
        return answer.status, answer.text if answer.status >= 400 or route in LOOKS_ONLY else sorted(answer.json)
    if answer.headers.get("Content-Type") != "application/json":
        return answer.status, _DRAWN.sub("", answer.headers.get("Location", ""))
    if answer.status >= 400:
        said = answer.json
        return answer.status, said["error"], said.get("error_description"), said["error_code"]
    return (answer.status, answer.text) if route in LOOKS_ONLY else (answer.status, sorted(answer.json))
