"""Two tenants: no response shows the first tenant's data to the second tenant, and no request changes it.

This holds for any ids in requests. The database shows which data belong to the first tenant: the rows that do not exist
without it, and every text in them that occurs nowhere else. A new table is covered as soon as it has a row about the
tenant. With a decoy (decoys.py), an attempt on a field covers every column.
"""

import json
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import Final

import psycopg
import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.federation.oauth.model.device_flow import MAX_TYPED_LENGTH
from entrypoints.http.app import Application, Edge, build_routes, configure
from entrypoints.http.edge.typed_fields import to_domain, to_domains, to_token
from ports import Ports
from tests.proof.access.attempts import (
    EXTRA_FIELDS,
    NO_FIELD,
    SPIES,
    TABLE,
    THOROUGH,
    Attempt,
    attempts,
    fields_of_body,
    is_turned_away,
)
from tests.proof.access.calls import Request, call, prepare, without_variant
from tests.proof.access.decoys import decoys_of, shape
from tests.proof.access.private_data import Secrets, full_text, stored
from tests.proof.access.refusals import refused_alike
from tests.proof.access.state import (
    Changes,
    JournaledPool,
    Row,
    begin_journal,
    changes_since,
    fill,
    forget_test,
    journaled_database,
    mark,
    state,
    undo,
)
from tests.proof.access.table import REQUESTS
from tests.proof.access.world import Caller, World
from tests.support.builders import Answer, application, make_vault, run_sql
from tests.support.database import KeptConnections
from tests.support.scim import SCIM_JSON

pytestmark = pytest.mark.slow

PIECES = 12  # so that a test run's workers share the routes
# For the callers with the most and the least rights, the responses are compared with the responses
# in a world without the home organization.
COMPARED = (*THOROUGH, "foreign-anonymous")
# These routes change nothing. All other callers' changes are undone after every call.
LOOKS_ONLY = frozenset(route for route in TABLE if route.startswith("GET") and route != "GET /auth/verify-email")

# Routes that count an organization's requests in their use case. Every attempt is the first
# attempt.
COUNTED = frozenset(
    {
        "POST /api/organizations/<org_slug>/connections/<connection_slug>/check",
        "POST /app/organizations/<org_slug>/connections/<connection_slug>",
        "POST /app/organizations/<org_slug>/connections/<connection_slug>/keys/client-secret",
        "POST /app/organizations/<org_slug>/connections/<connection_slug>/test",
        "GET /app/organizations/<org_slug>/connections/<connection_slug>/test/start",
    }
)

_NEW = re.compile(  # the id on a new object's page
    r"(?:(?<=/api-resources/)|(?<=/service-accounts/))[0-9a-f-]{36}(?=/(?:applications|credentials)$)"
    r"|(?<=/deliveries/)[0-9a-f-]{36}(?=\?tested=true$)|(?<=/groups/)[0-9a-f-]{36}$"
)
_DRAWN = re.compile(r"&(state|nonce|code_challenge)=[A-Za-z0-9_-]{43}(?=&|$)")  # random in every redirect to a provider

_FLOW = re.compile(r"^/app/flow/[0-9a-f-]{36}")  # a new id in every request that begins a sign-in

_NONCE = re.compile(r'nonce="[^"]+"|name="form_key" value="[^"]+"')  # random in every page

_SID = re.compile(r'"sid": "[0-9a-f-]{36}"')  # random in every preview of a sign-in, which begins no session


@dataclass(frozen=True, slots=True)
class Site:
    """The service on a database."""

    app: QuartTrio
    pool: Pool
    beginning: int = 0  # a mark: the state in which every attempt begins

    async def answer(self, route: str, attempt: Attempt, caller: Caller, before: int) -> Answer:
        """Return the answer to an attempt, and undo its changes since the mark."""
        answer = await self._send(route, attempt, caller)
        if may_change(route, answer):
            await undo(self.pool, before)
        return answer

    async def answer_and_changes(self, route: str, attempt: Attempt, caller: Caller, before: int) -> tuple[Answer, Changes]:
        """Return the answer to an attempt and the changes since the mark, and undo them.

        An attempt that should not change anything has none: `findings` looks once after all attempts.
        """
        answer = await self._send(route, attempt, caller)
        if not may_change(route, answer):
            return answer, Changes()
        changes = await changes_since(self.pool, before)
        if changes:
            await undo(self.pool, before)
        return answer, changes

    async def _send(self, route: str, attempt: Attempt, caller: Caller) -> Answer:
        if route in COUNTED:
            await run_sql(self.pool, "delete from rates")
        return await call(self.app, route, attempt.request, caller)


def may_change(route: str, answer: Answer) -> bool:
    return answer.status < 400 and route not in LOOKS_ONLY


# Responses that show on purpose that the resource in the request exists.
EXISTENCE_SHOWN_ON_PURPOSE = {
    "<org_slug>": "403, not 404 (security B-5)",
    "all of the path": "the slug is part of it",
    "POST /api/auth/register body.email": "409: the address is taken (decision 65)",
    "POST /app/sign-up form.email": "409: the address is taken (decision 65)",
    "POST /app/flow/<flow_id>/sign-up form.email": "409: the address is taken (decision 65)",
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
    "GET /auth/end-session ?client_id=": "every visitor of an application sees its client id",
    "POST /auth/end-session ?client_id=": "every visitor of an application sees its client id",
    "POST /auth/device/code body.client_id": "every visitor of an application sees its client id",
    "POST /auth/device/code body.org": "the organization, or the provider, does not exist (decision 86)",
    "POST /app/account/email form.email": "an address belongs to one account",
    "POST /auth/connections/<connection_id>/backchannel-logout <connection_id>": "identity providers report sign-outs there",
    "POST /auth/connections/<connection_id>/slo <connection_id>": "identity providers report sign-outs there",
    "GET /auth/connections/<connection_id>/jwks.json <connection_id>": "identity providers read our public keys there",
    "GET /auth/connections/<connection_id>/start <connection_id>": "sign-ins of everyone begin there",
    "GET /auth/connections/<connection_id>/start ?org=": "the organization, or the application, does not exist (decision 86)",
    "GET /auth/connections/<connection_id>/initiate <connection_id>": "sign-ins of everyone begin there",
    "POST /auth/connections/<connection_id>/initiate <connection_id>": "sign-ins of everyone begin there",
    "DELETE /api/privacy/forget/<user_id> <user_id> of both": "only a user who owns all organizations of the other may",
}
# Responses that show more about the resource on purpose.
DATA_SHOWN_ON_PURPOSE = {
    "POST /app/organizations/<org_slug>/applications/new form.name": "the slug, which is made from the name",
    "POST /api/auth/lookup-email body.email": "the identity provider of a verified domain (security B-4)",
    "POST /api/service/users body.email": "the account of the address, without rights over it (security K-3)",
    "GET /auth/<provider:provider> ?client_id=": "the client id and the scopes at the provider, which every visitor sees",
}
# Routes that store the resource's data on purpose.
DATA_STORED_ON_PURPOSE = {
    "POST /app/organizations/new form.name": "the slug, which is made from the name",
    "POST /app/organizations/<org_slug>/applications/new form.name": "the slug, which is made from the name",
    "POST /api/auth/register body.org_slug": "the email has the branding of any active organization (security E-1)",
    "POST /api/auth/forgot-password body.org_slug": "the email has the branding of any active organization (security E-1)",
}
# Responses that show other tenants' data on purpose, whatever the request is.
LISTED_ON_PURPOSE = {
    "GET /api/organizations/<org_slug>/domains/<domain>/accounts": "what others created at a verified domain (security T-6)",
    "GET /api/organizations/<org_slug>/domains/<domain>/invitations": "invitations of others at a verified domain (security T-6)",
    "GET /app/organizations/<org_slug>/domains/<domain>/accounts": "the same as a page",
    "GET /app/organizations/<org_slug>/domains/<domain>/invitations": "the same as a page",
}
ROUTES: Final = [route for route in TABLE if route not in LISTED_ON_PURPOSE]
# Changes to the home organization's rows that a route may cause, by route and table.
CHANGED_ON_PURPOSE = {
    ("GET /auth/<provider:provider>", "sign_in_flows"): "the request of the browser, as it was sent",
    ("GET /auth/connections/<connection_id>/start", "sign_in_flows"): "the request of the browser, as it was sent",
    ("GET /auth/authorize", "sign_in_flows"): "the request of the browser, as it was sent",
    ("DELETE /api/privacy/forget/<user_id>", "invitations"): "invitations of an anonymized address end (security Y-2)",
    ("DELETE /api/privacy/forget/<user_id>", "audit_log"): "the address is removed from the log",
    ("DELETE /api/privacy/forget/<user_id>", "audit_totals"): "the log changed",
    ("DELETE /api/privacy/forget/<user_id>", "events"): "the address is removed from events",
    ("DELETE /api/privacy/forget/<user_id>", "siem_queue"): "the new log entry is forwarded",
    ("DELETE /api/privacy/forget/<user_id>", "webhook_deliveries"): "the new event is delivered",
    ("DELETE /api/user", "invitations"): "invitations of an anonymized address end (security Y-3)",
    ("DELETE /api/user", "audit_log"): "the address is removed from the log",
    ("DELETE /api/user", "audit_totals"): "the log changed",
    ("DELETE /api/user", "events"): "the address is removed from events",
    ("DELETE /api/user", "siem_queue"): "the new log entry is forwarded",
    ("DELETE /api/user", "webhook_deliveries"): "the new event is delivered",
}


def test_the_fields_of_bodies_are_tried() -> None:
    """Schemas are behind references. Without their fields, the leak test would try only paths and queries."""
    assert sum(len(fields_of_body(route)) for route in TABLE) > 100


@pytest.fixture(scope="session")
def database_without_home() -> Iterator[psycopg.Connection]:
    """A database for the world without the home organization."""
    with journaled_database() as connection:
        yield connection


@pytest.fixture(scope="session")
def kept_without_home(database_without_home: psycopg.Connection) -> Iterator[KeptConnections]:
    kept = KeptConnections(database_without_home.info.dsn)
    yield kept
    kept.close()


@pytest.fixture(scope="session")
def app_without_home() -> Application:
    other = build_routes()
    other.description = application().description  # the same for all databases, and slow to build
    return other


@pytest.fixture
async def without_home(
    database_without_home: psycopg.Connection,
    kept_without_home: KeptConnections,
    app_without_home: Application,
    world: World,
    ports: Ports,
    edge: Edge,
) -> AsyncIterator[Site]:
    """The service in a world without the home organization."""
    forget_test(database_without_home)
    pool = JournaledPool(kept_without_home, database_without_home)
    if missing := world.state_without_home - await state(pool):
        await run_sql(pool, "delete from connections")  # those of the platform, which the world has filled
        await fill(pool, missing)
        await begin_journal(pool)
    alone = replace(ports, storage=Postgres(pool, make_vault(), ports.clock))
    configure(app_without_home, alone, edge, observe=lambda _: None, exposition=lambda: b"", exposition_type="text/plain")
    yield Site(app_without_home, pool)
    await pool.aclose()


_decoys: list[Row] = []
_secrets: list[Secrets] = []


@pytest.fixture
async def secrets(world: World, pool: Pool) -> Secrets:
    """The data of the home organization and the decoy, which this adds to the world."""
    if not _decoys:
        _decoys.extend(decoys_of(world.state - world.state_without_home, Secrets.of(world).texts))
    await fill(pool, _decoys)
    if not _secrets:
        _secrets.append(Secrets.of(world, (await changes_since(pool, 0)).got))
    return _secrets[0]


@pytest.mark.parametrize("piece", range(PIECES))
async def test_no_request_reveals_or_changes_data_of_another_tenant(
    piece: int, app: QuartTrio, pool: Pool, world: World, secrets: Secrets, without_home: Site
) -> None:
    """Totals, order, messages and refusals reveal nothing either (security B-5, T-2)."""
    leaks: list[str] = []
    repeated = refused_alike(app, ROUTES, {spy: world.callers[name] for spy, name in SPIES.items()})
    site = Site(app, pool, await mark(pool))
    for route in ROUTES[piece::PIECES]:
        for spy in (each for each in SPIES if each not in repeated[route]):
            leaks += [f"{route} as {spy}, {leak}" async for leak in findings(route, spy, world, secrets, site, without_home)]
    assert not leaks, "\n".join(leaks[:40])
    await undo(pool)
    assert await state(pool) == world.state, "every route began in the same world"
    assert await state(without_home.pool) == world.state_without_home


# Tokens that reached another tenant

# The fields in which the rival organization's client sends a token, by route.
CLIENT: Final = {"client_id": "{client_id}", "client_secret": "{client_secret}"}
SILENT: Final = {"client_id": "{client_id}", "scope": "openid", "response_type": "code", "prompt": "none"}
PLACES_OF_TOKENS: Final = (
    ("POST /auth/introspect", "token", CLIENT),
    ("POST /auth/revoke", "token", CLIENT),
    ("POST /auth/token", "refresh_token", {**CLIENT, "grant_type": "refresh_token"}),
    ("POST /auth/token", "code", {**CLIENT, "grant_type": "authorization_code", "redirect_uri": "{redirect_uri}"}),
    ("GET /auth/authorize", "id_token_hint", SILENT),
    ("GET /auth/end-session", "id_token_hint", {"client_id": "{client_id}"}),
)
TOKENS: Final = (
    *("openid_access_token", "openid_refresh_token", "id_token", "authorization_code", "refresh_token"),
    *("external_access_token", "external_refresh_token", "registered_refresh_token"),
)


async def test_a_token_of_another_tenant_is_as_unknown_as_a_made_up_one(app: QuartTrio, pool: Pool, world: World, secrets: Secrets) -> None:
    """It reveals neither its user nor whether it is valid, and stays valid (RFC 7662 section 4, RFC 7009 section 2.1)."""
    start = await mark(pool)
    for (route, place, fields), spy in product(PLACES_OF_TOKENS, ("foreign-anonymous", "foreign-browser", "foreign-owner")):
        caller = world.callers[spy]

        async def send(token: str) -> tuple[object, ...]:
            sent = {**fields, place: token}  # noqa: B023
            request = Request(query=sent) if route.startswith("GET") else Request(body=sent)  # noqa: B023
            answer = await call(app, route, request, caller)  # noqa: B023
            answer = replace(answer, text=answer.text.replace(token, ""))  # pages send it back
            assert secrets.private_texts(full_text(answer)) == [], f"{route} as {spy}"  # noqa: B023
            if place == "refresh_token":  # noqa: B023  # the message says on purpose that it is of another application
                return answer.status, answer.json["error"]
            if answer.headers["Content-Type"] == "application/json":
                return outcome("GET /auth/userinfo", answer)  # with the whole body
            return answer.status, answer.headers.get("Location"), _NONCE.sub("", answer.text)

        unknown = await send("made-up")
        for name in TOKENS:
            assert await send(world.home.things[name]) == unknown, f"{name} at {route} as {spy}"
        changes = await changes_since(pool, start)
        assert not changes.lost, f"{route} as {spy}"
        # Wrong codes are in the rival organization's log.
        assert all(is_failed_login(*row) for row in changes.got), f"{route} as {spy}"
        assert written_of_home(route, secrets, changes) == [], f"{route} as {spy}"
    own = Request(body={**CLIENT, "token": "{openid_access_token}"})
    assert (await call(app, "POST /auth/introspect", own, world.callers["foreign-anonymous"])).json["active"], "its own token is known"


async def findings(route: str, spy: str, world: World, secrets: Secrets, site: Site, without_home: Site) -> AsyncIterator[str]:
    """Yield the data that a spy can see or change with this route.

    The most and the least privileged spies get the same responses as in a world without the home organization. The
    valid request is not sent if it would get the same response: if it was accepted with fields that do not exist, and
    revealed and changed nothing, not even a sent text.
    """
    caller, request = world.callers[spy], REQUESTS.get(route, Request())
    is_compared = spy in COMPARED and (spy == "foreign-owner" or not is_turned_away(route, spy))
    before, before_alone = site.beginning, without_home.beginning
    if request.setup_sql:
        await prepare(site.pool, request, caller)
        await prepare(without_home.pool, request, caller)
        before, before_alone = await mark(site.pool), await mark(without_home.pool)
    alone: dict[tuple[str, str | None], set[tuple[object, ...]]] = {}
    is_valid_one_known = False
    for attempt in attempts(route, spy, world, secrets):
        if is_valid_one_known and attempt.where == NO_FIELD:
            continue
        answer, changes = await site.answer_and_changes(route, attempt, caller, before)
        if attempt.where == EXTRA_FIELDS and answer.status < 300:
            is_valid_one_known = not any(leaks_of(route, replace(attempt, sent=()), answer, changes, secrets))
        for leak in leaks_of(route, attempt, answer, changes, secrets):
            yield f"{attempt}: {leak}"
        if not is_compared:
            continue
        # Without the home organization, no value with such a shape exists, and the same answer stands for all values.
        known = alone.setdefault((attempt.where, shape(attempt.sent[0]) if attempt.sent else None), set())
        actual = outcome(route, answer)
        if actual not in known:
            expected = outcome(route, await without_home.answer(route, attempt, caller, before_alone))
            known.add(expected)
            if actual != expected and not EXISTENCE_SHOWN_ON_PURPOSE.keys() & {attempt.where, f"{without_variant(route)} {attempt.where}"}:
                yield f"{attempt}: {expected} became {actual}"
    changes = await changes_since(site.pool, before)
    for leak in lost_by_home(route, secrets, changes) + written_of_home(route, secrets, changes):
        yield f"after refused and reading requests: {leak}"
    if changes or request.setup_sql:
        await undo(site.pool, site.beginning)
    if is_compared or request.setup_sql:
        await undo(without_home.pool, without_home.beginning)


def leaks_of(route: str, attempt: Attempt, answer: Answer, changes: Changes, secrets: Secrets) -> Iterator[str]:
    """Yield the home organization's data that this attempt revealed or changed."""
    where = f"{without_variant(route)} {attempt.where}"
    if where not in DATA_SHOWN_ON_PURPOSE:
        for text in secrets.private_texts(full_text(answer), *echoes(attempt.sent)):
            yield f"the response {answer.status} contains {text}"
    yield from lost_by_home(route, secrets, changes)
    if where not in DATA_STORED_ON_PURPOSE:
        yield from written_of_home(route, secrets, changes, *echoes(attempt.sent))


@cache
def echoes(sent: tuple[str, ...]) -> list[str]:
    """Return the sent values as they are, and as pages read them (decision 361), the longest first."""
    readers = (str, to_domain, to_domains, to_token, lambda text: "".join(text.split()), lambda text: text[:MAX_TYPED_LENGTH])
    return sorted({read(text) for text in sent for read in readers}, key=len, reverse=True)


def lost_by_home(route: str, secrets: Secrets, changes: Changes) -> list[str]:
    """Return the home organization's rows that were changed or deleted."""
    return [
        f"{table} lost {row}"
        for table, row in secrets.rows & changes.lost
        if (without_variant(route), table) not in CHANGED_ON_PURPOSE and not is_named_attempt(table, row)
    ]


def is_named_attempt(table: str, row: str) -> bool:
    """Return whether the row names an account to the platform only. It is deleted with the attempt's application."""
    columns = json.loads(row)
    return table == "login_events" and columns["seen_by"] == "platform" and columns["service_id"] is not None


def written_of_home(route: str, secrets: Secrets, changes: Changes, *sent: str) -> list[str]:
    """Return the new rows that contain the home organization's data."""
    return [
        f"{table} got {row}"
        for table, row in changes.got
        if (without_variant(route), table) not in CHANGED_ON_PURPOSE
        and secrets.private_texts(json.dumps(stored(row)), *sent)
        and not may_have(table, row, secrets.rival)
    ]


def may_have(table: str, row: str, rival: str) -> bool:
    """Return whether the row may contain such data.

    Failed logins are recorded, even for unknown addresses, and are an event for the organization that knows the
    account. Requests during impersonation are recorded in the platform's log only (security I-5).
    """
    columns = json.loads(row)
    if table in ("audit_log", "events") and "impersonation.request" in (columns.get("action"), columns.get("name")):
        return columns["org_id"] is None
    return is_failed_login(table, row) and (table == "login_events" or columns["org_id"] != rival)


def is_failed_login(table: str, row: str) -> bool:
    """Return whether the row is a failed login's record or event."""
    columns = json.loads(row)
    if table == "login_events":
        return columns["success"] is False
    return "user.login.failed" in (columns.get("name"), columns.get("event_type"))


def outcome(route: str, answer: Answer) -> tuple[object, ...]:
    """Return the response without the parts that differ every time."""
    if answer.headers.get("Content-Type") == SCIM_JSON:
        return answer.status, answer.text if answer.status >= 400 or route in LOOKS_ONLY else tuple(sorted(answer.json))
    if answer.headers.get("Content-Type") != "application/json":
        return answer.status, _FLOW.sub("", _DRAWN.sub("", _NEW.sub("", answer.headers.get("Location", ""))))
    body = answer.json
    if answer.status >= 400:
        return answer.status, body["error"], body.get("error_description"), body["error_code"]
    return answer.status, _SID.sub("", json.dumps(body, sort_keys=True)) if route in LOOKS_ONLY else tuple(sorted(body))
