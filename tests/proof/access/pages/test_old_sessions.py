"""Pages with old sessions: a change that needs a younger sign-in asks for it, and comes back with what was asked (security A-12)."""

import re
from datetime import timedelta
from urllib.parse import parse_qsl

import pytest
from lxml import html
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.kernel.sign_in_age import SignInAge
from entrypoints.http.edge.access.declaration import access_of
from entrypoints.http.edge.reauthentication import SECRETS
from tests.proof.access.calls import Request, age_sessions, call, prepare, routes, without_variant
from tests.proof.access.console import DONE
from tests.proof.access.pages.opening import opened_pages
from tests.proof.access.state import changes_since, mark, state, undo
from tests.proof.access.table import REQUESTS, read_matrix
from tests.proof.access.world import Caller, World
from tests.support.browser import hidden_fields
from tests.support.builders import Answer, application, run_concurrently, run_sql

pytestmark = pytest.mark.slow

CONFIRMATION = "/app/reauthenticate"
BROWSERS = ("browser", "admin-browser", "platform-browser", "suspended-browser")
ACCESS = {route: access_of(view) for route, view in routes(application())}
TABLE = read_matrix()
CHANGES = [
    (route, next((name for name in BROWSERS if TABLE[route].get(name) in (DONE, "200", "303")), None))
    for route in TABLE
    if ACCESS[without_variant(route)].credentials.scheme == "cookie"
    and route.startswith("POST")
    and ACCESS[without_variant(route)].row("POST").age is not SignInAge.ANY
]
# Forms that no user in the table can send with success, and why.
NEVER_SENT = {
    "POST /app/account/delete": "the users of these browsers own an organization or the platform",
    "POST /app/account/organizations/<org_slug>/leave": "they are owners",
    "POST /app/account/subscriptions/<subscription_id>/cancel": "they have no subscription",
}
# Forms for which the password is not enough: the page asks for the mailbox, too.
WITH_MAILBOX = {"POST /app/account/passkeys/lost", "POST /app/account/passkeys/lost/remove"}
# Forms that only a passkey confirms: tests/accounts/api/passkeys/test_required_passkeys.py.
WITH_PASSKEY = {"POST /app/account/password/remove"}
# Forms that need a factor which the table's user has not: tests/tenancy/api/policy/test_imposed_rules.py.
WITH_FACTOR = {"POST /app/organizations/<org_slug>/sign-in-policy/imposed-rules"}
OLD = timedelta(days=10)


async def send(app: QuartTrio, caller: Caller, path: str, fields: dict[str, str]) -> Answer:
    return await call(app, f"POST {path}", Request(form=fields), caller)


def outcome(answer: Answer) -> tuple[int, str]:
    """Return a redirect's status and target, without the ids of new objects."""
    return answer.status, re.sub("[0-9a-f-]{36}", "<id>", answer.headers.get("Location", ""))


async def confirm(app: QuartTrio, caller: Caller, answer: Answer) -> Answer:
    """Confirm with the password, and return the page with the button that sends the kept form."""
    target = answer.headers["Location"]
    assert target.startswith(f"{CONFIRMATION}?form="), target
    query = dict(parse_qsl(target.partition("?")[2]))
    page = await call(app, f"GET {CONFIRMATION}", Request(query=query), caller)
    assert page.status == 200
    fields = {"form_token": caller.things["form_token"], "password": caller.things["password"], **query}
    if 'id="code"' in page.text:
        fields["code"] = caller.things["code"]
    done = await send(app, caller, CONFIRMATION, fields)
    assert (done.status, done.headers.get("Location")) == (303, target), done.text
    return await call(app, f"GET {CONFIRMATION}", Request(query=query), caller)


def test_every_change_on_a_page_is_tried() -> None:
    assert {route for route, browser in CHANGES if browser is None} == {
        route for route, _ in CHANGES if without_variant(route) in NEVER_SENT
    }


@pytest.mark.parametrize("piece", range(4))
async def test_a_form_is_kept_and_sent_again_after_the_confirmation(piece: int, app: QuartTrio, pool: Pool, world: World) -> None:
    wrong: list[str] = []
    for route, browser in [change for change in CHANGES if change[1] is not None][piece::4]:
        request, caller = REQUESTS.get(route, Request()), world.callers[browser or ""]
        await run_sql(pool, "delete from rates")
        await prepare(pool, request, caller)
        direct = await call(app, route, request, caller)
        await undo(pool)
        await prepare(pool, request, caller)
        await age_sessions(pool, caller, OLD)
        before = await mark(pool)
        answer = await call(app, route, request, caller)
        changed = {table for table, _ in (await changes_since(pool, before)).got}
        target, _, query = answer.headers.get("Location", "").partition("?")
        asked = dict(parse_qsl(query))
        is_kept = SECRETS.isdisjoint(request.form or {}) and request.file is None
        names, tables = ({"form", "next"}, {"kept_forms"}) if is_kept else ({"next", "empty"}, set())
        if route in WITH_PASSKEY:
            names.add("policy")
        if (answer.status, target, set(asked), changed) != (303, CONFIRMATION, names, tables):
            wrong.append(f"{route} as {browser}: {answer.status} {answer.headers.get('Location')}, it changed {changed}")
        elif (await call(app, f"GET {asked['next']}", Request(), caller)).status not in (200, 303):
            wrong.append(f"{route} as {browser}: {asked['next']} is not the page of the form")
        elif is_kept and route not in WITH_PASSKEY | WITH_FACTOR:
            page = await confirm(app, caller, answer)
            fields = hidden_fields(page)
            action = page.text.partition('<form method="post" action="')[2].partition('"')[0]
            again = await send(app, caller, action, fields)
            status, location = outcome(answer) if route in WITH_MAILBOX else outcome(direct)
            if outcome(again) not in ((status, location), (status, f"{location}&policy=%2A%2A%2A%2A%2A")):
                wrong.append(f"{route} as {browser}: {outcome(again)} instead of {(status, location)}")
        await undo(pool)
    assert not wrong, "\n".join(wrong)
    assert await state(pool) == world.state


async def test_the_fields_that_hide_what_is_typed_are_the_secrets_that_are_not_kept(app: QuartTrio, pool: Pool, world: World) -> None:
    adapter, names = app.url_map.bind("localhost"), {id(view): route for route, view in routes(app)}
    asks = {without_variant(route) for route, _ in CHANGES}
    hidden, others = set(), set()
    for page in await opened_pages(app, pool, world):
        for form in html.document_fromstring(page.answer.text).xpath("//form[@method='post']"):
            endpoint, _ = adapter.match(form.get("action").partition("?")[0], method="POST")
            if names[id(app.view_functions[endpoint])] in asks:
                hidden |= set(form.xpath(".//input[@type='password']/@name"))
                others |= set(form.xpath(".//*[@name][not(@type='password')]/@name"))
    assert hidden == SECRETS
    assert others & SECRETS == set()


NEW_KEY = "/app/organizations/aurora/service-accounts/new"


async def is_ended(app: QuartTrio, caller: Caller, answer: Answer) -> bool:
    """Return whether the answer leads to the page that says that the form was already sent or has expired."""
    query = dict(parse_qsl(answer.headers["Location"].partition("?")[2]))
    page = await call(app, f"GET {CONFIRMATION}", Request(query=query), caller)
    return page.status == 400 and "was already sent, or has expired" in page.text


async def test_only_our_own_form_is_kept_and_only_its_session_takes_it_once(app: QuartTrio, pool: Pool, world: World) -> None:
    caller, other = world.callers["browser"], world.callers["admin-browser"]
    await age_sessions(pool, caller, OLD)
    await age_sessions(pool, other, OLD)
    form = {"form_token": caller.things["form_token"], "name": "Kept", "role": "member"}
    for fields in ({**form, "form_token": "x"}, {name: text for name, text in form.items() if name != "form_token"}):
        assert (await send(app, caller, NEW_KEY, fields)).status == 403
    assert await run_sql(pool, "select * from kept_forms") == []
    page = await confirm(app, caller, await send(app, caller, NEW_KEY, form))
    kept = hidden_fields(page)
    await confirm(app, other, await send(app, other, NEW_KEY, {**form, "form_token": other.things["form_token"]}))
    foreign = await send(app, other, NEW_KEY, {**kept, "form_token": other.things["form_token"]})
    assert await is_ended(app, other, foreign), "of another session"
    webhooks = "select count(*) from webhooks"
    before = await run_sql(pool, webhooks)
    elsewhere = await send(app, caller, "/app/organizations/aurora/webhooks/new", kept)
    assert elsewhere.headers["Location"].startswith(f"{CONFIRMATION}?form="), "to another path"
    assert await run_sql(pool, webhooks) == before
    answers = await run_concurrently(20, lambda _: send(app, caller, NEW_KEY, kept))
    assert sorted([answer.status == 303 and await is_ended(app, caller, answer) for answer in answers]) == [False] + [True] * 19
    assert await run_sql(pool, "select count(*) from service_accounts where name = 'Kept'") == [(1,)]
    await undo(pool)


async def test_kept_forms_are_few_sealed_and_expire(app: QuartTrio, pool: Pool, world: World, clock: object) -> None:
    caller = world.callers["browser"]
    await age_sessions(pool, caller, OLD)
    form = {"form_token": caller.things["form_token"], "name": "Kept secretly", "role": "member"}
    answers = [await send(app, caller, NEW_KEY, form) for _ in range(7)]
    assert {answer.status for answer in answers} == {303}
    rows = await run_sql(pool, "select fields from kept_forms")
    assert len(rows) == 5
    assert not any(b"Kept secretly" in fields for (fields,) in rows)
    await run_sql(pool, "update kept_forms set expires_at = created_at")
    query = dict(parse_qsl(answers[-1].headers["Location"].partition("?")[2]))
    page = await call(app, f"GET {CONFIRMATION}", Request(query=query), caller)
    assert (page.status, "was already sent, or has expired" in page.text) == (400, True)
    await undo(pool)


@pytest.mark.parametrize("path", ["//evil.example", "https://evil.example", "/app/../x", "/\\evil.example"])
async def test_the_page_continues_only_on_this_server(app: QuartTrio, pool: Pool, world: World, path: str) -> None:
    answer = await call(app, f"GET {CONFIRMATION}", Request(query={"next": path}), world.callers["browser"])
    assert (answer.status, answer.headers["Location"]) == (303, "/app")
