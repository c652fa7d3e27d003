"""Two tenants: no response tells the second about the first, with any ids in requests, and no
request changes data of the first.

The database tells which data belong to the first tenant: the rows that do not exist without it, and
every text in them that occurs nowhere else. A new table is covered as soon as it has a row of the
tenant.
"""

import base64
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from adapters.postgres.engine.pool import Pool
from tests.proof.access.calls import Request, call, filled, in_any_way, prepare
from tests.proof.access.state import State, put_back, state
from tests.proof.access.table import CODES, REQUESTS, read_matrix
from tests.proof.access.world import SLUGS, World, reason_of
from tests.support.builders import Answer, Api
from tests.support.openapi import operations
from tests.support.scim import SCIM_JSON

pytestmark = pytest.mark.slow

# The callers that try to learn about the home organization: all of the rival organization and some
# without a tenant. The second caller of each pair has the same rights in the home organization.
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
OPERATIONS = {f"{method} {path}": operation for method, path, operation in operations()}
# These try all values,
THOROUGH = ("foreign-owner", "foreign-key", "foreign-browser", "foreign-directory")
# and these responses are compared with those of a world without the home organization: the most and
# the least rights.
COMPARED = (*THOROUGH, "foreign-anonymous")
# After all other calls the changes are undone.
LOOKS_ONLY = frozenset(route for route in TABLE if route.startswith("GET") and route != "GET /auth/verify-email")

Schema = Mapping[str, Any]  # of JSON

# Logs, and values that users do not choose.
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
# Fields with references. Other fields hold free text and are not tried with all values. Form tokens
# and device tokens refer only to their sender.
_REFERENCE = re.compile(r"(^|[_.])(id|slug|email|(?<!form_)(?<!device_)token|domain|domains|value|userName)$")
_DRAWN = re.compile(r"&(state|nonce|code_challenge)=[A-Za-z0-9_-]{43}(?=&|$)")  # random in each redirect to a provider
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d.*")
_TOKEN = re.compile(r"eyJ[\w-]+\.(eyJ[\w-]+)\.[\w-]+")


def texts(value: Any) -> Iterator[str]:
    """Yield every text in a JSON value except times, and bytes as hexadecimal digits."""
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
    """The data of the home organization: its rows, their texts by column, and secrets that no row
    has."""

    rows: State
    texts: Mapping[str, str]
    unwritten: Mapping[str, str]  # passwords and tokens, which are stored as hashes

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
        # Six digits occur in many numbers. The platform's own records do not belong to the tenant.
        unwritten = {text: name for text, name in unwritten.items() if not text.isdecimal()} | dict.fromkeys(
            map(reason_of, SLUGS), "reason"
        )
        return cls(rows, found, unwritten)

    def found_in(self, said: str, *sent: str) -> list[str]:
        """Return the texts in a response.

        Texts of the request, and their parts, can come back without telling anything new.
        """
        said = heard = said.lower()
        for one in sent:
            heard = heard.replace(one.lower(), "")
        echoed = " ".join(sent).lower()
        all_of_it = [*self.texts.items(), *self.unwritten.items()]
        return [f"{column}: {text}" for text, column in all_of_it if text in (heard if text in echoed else said)]

    def ids(self) -> list[str]:
        """Return the texts to try: of things all, of other records one per column (`of_each_kind`)."""
        return [text for text, column in self.texts.items() if _ID.fullmatch(text) and column.partition(".")[0] not in LEFT_BEHIND]

    def of_each_kind(self) -> list[str]:
        """Return one text of each column."""
        return list({column: text for text, column in self.texts.items()}.values())


def everything_said(answer: Answer) -> str:
    """Return body and headers, and the content of the tokens in them."""
    said = f"{answer.text} {answer.headers}"
    return said + " ".join(base64.urlsafe_b64decode(found + "==").decode() for found in _TOKEN.findall(said))


@dataclass(frozen=True, slots=True)
class Attempt:
    """A request, and the value of the home organization in it."""

    request: Request
    sent: tuple[str, ...] = ()
    where: str = "nothing of it"

    def __str__(self) -> str:
        return f"with {' '.join(self.sent)} in {self.where}"


def attempts(route: str, spy: str, world: World, secrets: Secrets) -> Iterator[Attempt]:
    """Yield the valid request, and requests with a value of the home organization in each text.

    The owner and the API key, who get furthest, try every id and a text of every kind. Others try
    the named things of a request to the home organization. Secrets, such as the token of an
    invitation, are not sent alone.
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
    # Also for a member of both: a change by one organization must not affect the other.
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
    """Return whether the spy is refused by the access check, or the route is public."""
    is_open = "security" not in operation(route)
    knocks = {"foreign-owner", "foreign-anonymous"} | ({"foreign-browser"} if " /app/sign-" in route else set())
    return TABLE[route][SPIES[spy]] in CODES or (is_open and spy not in knocks)


def smuggling(route: str, plain: Request, named: Mapping[str, str]) -> Request:
    """Return the request with extra fields.

    Only the path and the token count (security T-1, N-5).
    """
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
    properties: Mapping[str, Schema] = content.get("schema", {}).get("properties", {})
    return properties


def bodies(route: str, plain: Mapping[str, Any], value: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the body with the value in each place, including lists, and the name of the place."""
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
    """Return whether the schema allows such a text."""
    unfit = {"date", "date-time"} if _ID.fullmatch(value) else {"date", "date-time", "uuid"}
    return any(kind.get("type") == "string" and "enum" not in kind and kind.get("format") not in unfit for kind in kinds(schema))


def kinds(schema: Schema) -> list[Schema]:
    """Return a schema and its alternatives."""
    return [schema, *(kind for one in schema.get("anyOf", ()) for kind in kinds(one))]


def operation(route: str) -> dict[str, Any]:
    return OPERATIONS[re.sub(r"<(?:[a-z]+:)?([a-z_]+)>", r"{\1}", in_any_way(route))]


@dataclass(frozen=True, slots=True)
class Tried:
    """The result of an attempt. `after` is None if it could not change anything."""

    attempt: Attempt
    answer: Answer
    after: State | None


async def try_all(route: str, spy: str, world: World, secrets: Secrets, before: State, api: Api, pool: Pool) -> list[Tried]:
    """Return all attempts of a spy. Each starts in the same world."""
    tried = []
    for attempt in attempts(route, spy, world, secrets):
        answer = await call(api, route, attempt.request, world.callers[spy])
        after = await state(pool) if answer.status < 400 and route not in LOOKS_ONLY else None
        if after is not None:
            await put_back(pool, after, before)
        tried.append(Tried(attempt, answer, after))
    return tried


# Responses that tell on purpose that the named thing exists.
TOLD_ON_PURPOSE = {
    "<org_slug>": "403, not 404 (decision 17)",
    "all of the path": "the slug is part of it",
    "POST /api/auth/register body.email": "409: the address is taken (decision 65)",
    "PATCH /api/user body.email": "an address belongs to one account",
    "POST /api/organizations body.slug": "a slug belongs to one organization (security T-4)",
    "PATCH /api/service/users/<user_id> body.email": "an address belongs to one account",
    "POST /api/service/subscriptions body.plan_id": "403, not 404, for another service's plan (security B-5)",
    "PATCH /api/service/subscriptions/<user_id> body.plan_id": "403, not 404, for another service's plan (security B-5)",
    "<device_id>": "403, not 404, for another user's device (security B-5)",
    "POST /scim/v2/Users body.userName": "409 (security C-2)",
    "PUT /scim/v2/Users/<user_id> body.userName": "an address belongs to one account",
    "GET /auth/<provider:provider> ?client_id=": "every visitor of an application sees its client id",
    "GET /auth/<provider:provider> ?org=": "the organization, or the provider, does not exist (decision 86)",
    "POST /auth/device/code body.org": "the organization, or the provider, does not exist (decision 86)",
    "POST /app/account/email form.email": "an address belongs to one account",
    "DELETE /api/privacy/forget/<user_id> <user_id> of both": "only a user who owns all organizations of the other may",
}
# Responses that contain more about the named thing,
GIVEN_ON_PURPOSE = {
    "POST /api/auth/lookup-email body.email": "the identity provider of a verified domain (security B-4, decision 212)",
    "POST /api/service/users body.email": "the account of the address, without rights over it (security K-3)",
    "GET /auth/<provider:provider> ?client_id=": "the client id and the scopes at the provider, which every visitor sees",
}
# and those that store it.
NOTED_ON_PURPOSE = {
    "POST /api/auth/register body.org_slug": "the email has the branding of any active organization (security E-1)",
    "POST /api/auth/forgot-password body.org_slug": "the email has the branding of any active organization (security E-1)",
}
# Changes of the home organization's rows that a route may cause, by route and table.
CHANGED_ON_PURPOSE = {
    ("GET /auth/<provider:provider>", "provider_states"): "the path of the browser, as it was sent",
    ("DELETE /api/privacy/forget/<user_id>", "invitations"): "invitations of an anonymized address end (security Y-2)",
    ("DELETE /api/privacy/forget/<user_id>", "audit_log"): "the address is removed from the log",
    ("DELETE /api/privacy/forget/<user_id>", "audit_totals"): "the log changed",
    ("DELETE /api/privacy/forget/<user_id>", "events"): "the address is removed from events",
    ("DELETE /api/privacy/forget/<user_id>", "siem_queue"): "the new log entry is forwarded",
    ("DELETE /api/privacy/forget/<user_id>", "webhook_deliveries"): "the new event is delivered",
}


def test_the_fields_of_bodies_are_tried() -> None:
    """Schemas are behind references. Without their fields, the leak test would try only paths and queries."""
    assert sum(len(fields_of_body(route)) for route in TABLE) > 100


@pytest.mark.parametrize("route", TABLE)
async def test_no_request_reveals_or_changes_data_of_another_tenant(route: str, api: Api, pool: Pool, world: World) -> None:
    """Totals, order, messages and refusals reveal nothing either (security B-5, T-2)."""
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
    """Return the data of the home organization that this attempt revealed."""
    sent, where = tried.attempt.sent, f"{in_any_way(route)} {tried.attempt.where}"
    if where not in GIVEN_ON_PURPOSE:
        for text in secrets.found_in(everything_said(tried.answer), *sent):
            yield f"the answer {tried.answer.status} says {text}"
    if tried.after is not None:
        yield from lost_by_home(route, secrets, tried.after)
        if where not in NOTED_ON_PURPOSE:
            yield from written_of_home(route, secrets, before, tried.after, *sent)


def told(route: str, alone: Tried, beside: Tried) -> Iterator[str]:
    """Return how the answer differs from that without the home organization."""
    where = beside.attempt.where
    was, is_ = outcome(route, alone.answer), outcome(route, beside.answer)
    if was != is_ and not TOLD_ON_PURPOSE.keys() & {where, f"{in_any_way(route)} {where}"}:
        yield f"{was} became {is_}"


def lost_by_home(route: str, secrets: Secrets, after: State) -> list[str]:
    """Return the rows of the home organization that were changed or deleted."""
    return [f"{table} lost {row}" for table, row in secrets.rows - after if (in_any_way(route), table) not in CHANGED_ON_PURPOSE]


def written_of_home(route: str, secrets: Secrets, before: State, after: State, *sent: str) -> list[str]:
    """Return the new rows that contain data of the home organization."""
    return [
        f"{table} got {row}"
        for table, row in after - before
        if (in_any_way(route), table) not in CHANGED_ON_PURPOSE and secrets.found_in(row, *sent) and not is_of_the_platform(table, row)
    ]


def is_of_the_platform(table: str, row: str) -> bool:
    """Return whether the row may contain such data.

    Failed logins are recorded, even for unknown addresses. Requests during impersonation are
    recorded in the platform's log only (security I-5).
    """
    written = json.loads(row)
    if table in ("audit_log", "events"):
        return "impersonation.request" in (written.get("action"), written.get("name")) and written["org_id"] is None
    return table == "login_events" and written["success"] is False


def outcome(route: str, answer: Answer) -> tuple[object, ...]:
    """Return the response without the parts that differ every time."""
    if answer.headers.get("Content-Type") == SCIM_JSON:
        return answer.status, answer.text if answer.status >= 400 or route in LOOKS_ONLY else sorted(answer.json)
    if answer.headers.get("Content-Type") != "application/json":
        return answer.status, _DRAWN.sub("", answer.headers.get("Location", ""))
    if answer.status >= 400:
        said = answer.json
        return answer.status, said["error"], said.get("error_description"), said["error_code"]
    return (answer.status, answer.text) if route in LOOKS_ONLY else (answer.status, sorted(answer.json))
