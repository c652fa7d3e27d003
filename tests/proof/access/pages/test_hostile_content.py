"""Texts from outside never become a page's element or attribute.

Every text in the database contains markup, and every page is opened. This is more than an attacker can do, because the
API refuses most such texts. Then every declared parameter for every page outside the console contains markup.
`form-action` does not limit all these pages (decision 360).
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final
from urllib.parse import urlencode

import psycopg
import pytest
from lxml import html
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from entrypoints.http.edge.openapi import docs_of
from tests.proof.access.attempts import fields_of_query, operation
from tests.proof.access.calls import Request, call, routes
from tests.proof.access.pages.opening import LARGEST, Opened, open_all, operations
from tests.proof.access.state import mark, undo
from tests.proof.access.table import AUTHORIZATION, BROWSER, REQUESTS
from tests.proof.access.world import Caller, World
from tests.support.browser import FLOW, FakeBrowser, set_cookies
from tests.support.builders import Answer, run_sql

pytestmark = pytest.mark.slow

MARKUP: Final = (
    "\"' onfocus=probe() formaction=//probe.example probe=\"'></title></textarea></script></style><base href=//probe.example>"
    "<img src=probe onerror=alert(1)><script>probe()</script><a href=javascript:probe()>{{ 7 * 7 }}<form action=//probe.example>"
    "<button formaction=//probe.example><input name=probe value='"  # the last attribute takes in what follows
)
SCRIPT_URL: Final = "javascript:probe()//"
# What an authorization request shows on pages, or sends to the application. With `form_post`, the answer is a page.
REQUESTED: Final = ("login_hint", "state", "nonce", "scope", "prompt", "ui_locales", "error_description")
# Texts that the pages' addresses and the database's own rules need as they are.
KEPT: Final = frozenset({"organizations.slug", "services.slug", "tiers.id", "domains.domain"})
# Columns that must be among the changed columns.
NAMES: Final = frozenset(
    {
        *(f"{table}.name" for table in ("organizations", "services", "users", "plans", "webhooks", "devices", "api_keys")),
        *("scim_tokens.name", "registration_tokens.name"),
    }
)


async def columns_with_texts(pool: Pool) -> list[tuple[str, str, str]]:
    """Return the columns that can hold a text: table, column and type."""
    rows = await run_sql(
        pool,
        """
        select table_name, column_name, data_type from information_schema.columns join journal.tables on name = table_name
        where table_schema = 'public' and is_generated = 'NEVER' and data_type in ('text', 'jsonb', 'ARRAY') order by 1, 2""",
    )
    return [(table, column, kind) for table, column, kind in rows if f"{table}.{column}" not in KEPT]


async def spoil(pool: Pool, slug: str, text: str) -> list[str]:
    """Append `text` to every text with the organization's slug, and return the changed columns. The database refuses some."""
    changed = []
    inside_json = json.dumps(text)[1:-1]
    for table, column, kind in await columns_with_texts(pool):
        new, values = {
            "text": (f"{column} || %s", (text,)),
            "jsonb": (f"replace({column}::text, %s, %s)::jsonb", (slug, slug + inside_json)),
            "ARRAY": (f"array(select each || %s from unnest({column}) each)", (text,)),  # noqa: S608
        }[kind]
        update = f"update {table} set {column} = {new} where {column}::text ilike %s returning 1"  # noqa: S608
        try:
            rows = await run_sql(pool, update, *values, f"%{slug}%")
        except psycopg.Error:  # the database has a rule for it
            continue
        if rows:
            changed.append(f"{table}.{column}")
    return changed


def findings(page: Opened) -> list[str]:
    document = html.document_fromstring(page.answer.text)
    injected = "//base|//script[not(@src or @nonce)]|//*[@name='probe']|//@*[starts-with(name(), 'on') or name() = 'probe']/.."
    found = [f"has {html.tostring(each)[:80]!r}" for each in document.xpath(injected)]
    for element, attribute, link in links(document):
        if link.strip().lower().startswith(("javascript:", "data:text", "probe", "//probe")):
            found.append(f"{element} has the {attribute} {link[:60]}")
    if page.answer.status >= 500 and page.route.startswith("GET"):  # a form can fail, because no stored URL is like this text
        found.append(f"its status is {page.answer.status}")
    if len(page.answer.text.encode()) > LARGEST:
        found.append(f"it has {len(page.answer.text.encode())} bytes")
    return [f"{page.route} {each}" for each in found]


LINKS: Final = "|".join(f"//@{name}" for name in ("href", "src", "action", "formaction", "data", "poster", "background", "srcset", "ping"))


def links(document: html.HtmlElement) -> list[tuple[str, str, str]]:
    """Return every attribute that leads elsewhere: element, attribute and value."""
    return [(str(link.getparent().tag), link.attrname, link) for link in document.xpath(LINKS)]


@pytest.mark.parametrize("text", [MARKUP, SCRIPT_URL], ids=["markup", "script-url"])
async def test_no_text_of_the_database_becomes_markup(app: QuartTrio, pool: Pool, world: World, text: str) -> None:
    if text == MARKUP:
        await run_sql(pool, "update users set name = %s", f"A Name of {world.home.organization.slug}")
        changed = await spoil(pool, world.home.organization.slug, text)
        assert NAMES - set(changed) == set()
    else:
        for table, column, kind in await columns_with_texts(pool):
            if kind == "text" and column.endswith(("url", "uri", "picture")):
                await run_sql(pool, f"update {table} set {column} = %s where {column} is not null", text)  # noqa: S608
    try:
        # No form takes a stored URL, so the answers to forms show what their pages show.
        routes_of = [route for route in operations(app) if text == MARKUP or route.startswith("GET")]
        wrong = [finding async for page in open_all(app, pool, world, routes_of) for finding in findings(page)]
        assert not wrong, "\n".join(wrong)
    finally:
        await undo(pool)


# Pages outside the console

# Headings that must be among the opened pages' headings, without the text.
SEEN: Final = {
    "Check your inbox",
    "Confirm that it's you",
    "Connect a device",
    "Continue to Aurora Shop?",
    "Continue to the application",
    "Create your account for Aurora Shop",
    "Email address verified",
    "Use your second factor",
    "Sign in on this device?",
    "Sign in to Aurora Shop",
    "Sign out of Gatehouse?",
    "You are invited to Aurora Works",
    "You're signed in",
    "You're signed out",
}


def parameters(app: QuartTrio) -> dict[str, list[str]]:
    """Return the declared parameters of pages outside the console, in their query or form."""
    found, console = {}, operations(app)
    for route, view in routes(app):
        if docs_of(view).is_page is False or route in console:
            continue
        body = operation(route).get("requestBody", {}).get("content", {}).get("application/x-www-form-urlencoded", {}).get("schema", {})
        found[route] = sorted({*fields_of_query(route), *body.get("properties", {})} - {"form_token"})
    return found


def requests_with(text: str, names_by_route: Mapping[str, list[str]]) -> Iterator[tuple[str, Request]]:
    """Yield requests for all pages outside the console, with the text in a single value."""
    value = text.replace("{", "{{").replace("}", "}}")
    for route, names in names_by_route.items():
        request = REQUESTS.get(route, Request(form={} if route.startswith("POST") else None))
        for name in ["", *names]:
            changed = {name: value} if name else {}
            if request.form is not None:
                yield route, replace(request, form={**request.form, **changed})
            else:
                yield route, replace(request, query={**request.query, **changed})
    for name in REQUESTED:
        asked = {**AUTHORIZATION, "scope": "openid", name: value}
        yield "GET /auth/authorize", Request(query={"prompt": "consent", **asked})
        yield "GET /auth/authorize", Request(query={"prompt": "none", **asked, "response_mode": "form_post"})
        for page in ("GET /app/sign-in", "GET /app/sign-up", "GET /app/forgot-password"):
            query = f"{urlencode(AUTHORIZATION, safe='{}')}&{urlencode({'scope': 'openid', name: text})}"
            yield page, Request(query={"next": f"/auth/authorize?{query}"})
    yield "GET /api/organizations/<org_slug>/services/<service_slug>/saml/login", Request(query={"RelayState": value})
    failed = {"error": "access_denied", "error_description": value, "state": "made up"}
    yield "GET /auth/<provider:provider>/callback", Request(query=failed, cookies=BROWSER)
    yield "GET /auth/connections/<connection_id>/callback", Request(query=failed, cookies=BROWSER)


async def page_of_flow(app: QuartTrio, answer: Answer, caller: Caller) -> Answer:
    """Return the page of the sign-in step to which this answer leads, or the answer itself."""
    target = answer.headers.get("Location", "")
    if not FLOW.fullmatch(target):
        return answer
    browser = FakeBrowser(app)
    browser.cookies = {**caller.cookies, **{name: morsel.value for name, morsel in set_cookies(answer).items()}}
    return await browser.open(target)


@pytest.mark.parametrize("text", [MARKUP, SCRIPT_URL], ids=["markup", "script-url"])
async def test_no_value_of_a_request_becomes_markup(app: QuartTrio, pool: Pool, world: World, text: str) -> None:
    """The names and the branding in the database contain the same text."""
    slug, wrong, seen = world.home.organization.slug, [], set()
    await run_sql(pool, "update users set name = %s", f"A Name of {slug}")
    await spoil(pool, slug, text)
    await run_sql(pool, "update branding set logo_url = %s", text)
    await run_sql(pool, "update sign_in_flows set request = replace(request, %s, '')", text)  # so that their pages open
    start = await mark(pool)
    try:
        for route, request in requests_with(text, parameters(app)):
            for caller in (world.callers["browser"], world.callers["anonymous"]):
                await run_sql(pool, "delete from rates")
                answer = await call(app, route, replace(request, headers={"Accept": "text/html"}), caller)
                answer = await page_of_flow(app, answer, caller)
                await undo(pool, start)
                if answer.text and answer.headers["Content-Type"].startswith("text/html"):
                    seen.add(" ".join(html.document_fromstring(answer.text).xpath("string(//h1)").replace(text, "").split()))
                    wrong += findings(Opened(route, answer))
        assert not wrong, "\n".join(dict.fromkeys(wrong))
    finally:
        await undo(pool)
    assert SEEN - seen == set()
