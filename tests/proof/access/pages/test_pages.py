"""What holds for every console page: it loads nothing else, runs no foreign code, and leads only to pages that exist."""

import json
import re
import shlex
from typing import Final
from urllib.parse import urlsplit

import pytest
from lxml import html
from quart_schema.validation import QUART_SCHEMA_REQUEST_ATTRIBUTE
from quart_trio import QuartTrio
from werkzeug.exceptions import HTTPException
from werkzeug.routing import RequestRedirect

from adapters.postgres.engine.pool import Pool
from entrypoints.http.base.redirects import page_of_form
from entrypoints.http.edge.openapi import docs_of
from entrypoints.http.pages.curl import example_of, operations_of
from tests.proof.access.calls import Request, call, prepare
from tests.proof.access.pages.opening import EMPTY, LARGEST, Opened, caller_of, opened_pages, operations
from tests.proof.access.state import changes_since, mark, undo
from tests.proof.access.table import REQUESTS
from tests.proof.access.world import World

pytestmark = pytest.mark.slow

REFUSED: Final = {"GET /app/account/subscriptions/<subscription_id>": "the owner has no subscription"}
# They answer with a file, or lead elsewhere.
WITHOUT_PAGE: Final = {
    "GET /app",
    *(f"GET /app/account/{part}" for part in ("two-factor", "devices", "sessions")),
    *(f"GET /app/account/{part}" for part in ("two-factor/disable", "passkeys/second-factor")),  # they lead on while it is off
    "GET /app/organizations/<org_slug>/audit-log/export",
    "GET /app/organizations/<org_slug>/members/export",
    "GET /app/organizations/<org_slug>/sign-ins/export",
    "GET /app/platform/log/export",
    "GET /app/platform/sign-ins/export",
}
# They show a chosen document, or a secret that is never shown. Sent as they stand, their examples are refused.
NO_DOCUMENT: Final = {
    "GET /api/organizations/<org_slug>/services/<service_slug>/oauth-credentials/<provider>",
}
NOT_STORED: Final = {"access"}  # external clients: it changes another document
SAMPLE: Final = "GET /app/organizations/<org_slug>/branding/preview"  # its forms send nothing
FRAME: Final = "frame-ancestors 'none'"


async def test_every_page_is_complete_and_leads_only_to_pages_that_exist(app: QuartTrio, pool: Pool, world: World) -> None:
    wrong = []
    opened = set()
    for page in await opened_pages(app, pool, world):
        opened.add(page.route)
        wrong += [f"{page.route}: {finding}" for finding in findings(app, page)]
    assert not wrong, "\n".join(wrong)
    assert {route for route in operations(app) if route.startswith("GET")} - opened == WITHOUT_PAGE


async def test_every_form_leads_back_to_a_page_that_has_it(app: QuartTrio, pool: Pool, world: World) -> None:
    """After a confirmation or a new sign-in, the user fills the form in again there."""
    adapter = app.url_map.bind("")
    shown: dict[str, set[str]] = {}
    of_buttons = set()
    for page in await opened_pages(app, pool, world):
        if page.route.startswith("GET") and page.route != SAMPLE:
            forms = html.document_fromstring(page.answer.text)
            of_buttons |= {
                action.partition("?")[0] for action in forms.xpath("//main//form[@method='post']//button[@type='submit']/@formaction")
            }
            for action in forms.xpath(
                "//main//form[@method='post']/@action | //main//form[@method='post']//button[@type='submit']/@formaction"
            ):
                shown.setdefault(action.partition("?")[0], set()).add(page.route)
    elsewhere = {}
    async with app.app_context():
        for path, pages in shown.items():
            form, found = adapter.match(path, method="POST", return_rule=True)[0], adapter.match(page_of_form(path), return_rule=True)[0]
            # After a refusal, the form is shown at its own path, too, unless the path belongs to a further button.
            if f"GET {found.rule}" not in pages | WITHOUT_PAGE and (found.rule != form.rule or path in of_buttons):
                elsewhere[form.rule] = found.rule
    assert elsewhere == {}


def findings(app: QuartTrio, page: Opened) -> list[str]:
    """Return what is wrong with a page."""
    text, headers = page.answer.text, page.answer.headers
    document = html.document_fromstring(text)
    found = []
    if page.answer.status >= 500 or (page.answer.status != 200 and page.route.startswith("GET") and page.route not in REFUSED):
        found.append(f"its status is {page.answer.status}: {' '.join(document.text_content().split())[-200:]}")
    if len(text.encode()) > LARGEST:
        found.append(f"it has {len(text.encode())} bytes")
    policy = headers["Content-Security-Policy"]
    if FRAME not in policy or "default-src 'none'" not in policy or "unsafe" in policy or headers["Cache-Control"] != "no-store":
        found.append(f"its policy is {policy}")
    if len(document.findall(".//h1")) != 1 or not document.findtext(".//title"):
        found.append("it has not exactly one heading and a title")
    for element in document.iter():
        if not isinstance(element.tag, str):
            continue
        if any(name.startswith("on") or name == "style" for name in element.attrib):
            found.append(f"{element.tag} has {dict(element.attrib)}")
    ids = document.xpath("//@id")
    found += [f"the id {each} is there twice" for each in {each for each in ids if ids.count(each) > 1}]
    adapter = app.url_map.bind("localhost")
    for link in document.xpath("//a/@href"):
        parts = urlsplit(link)
        if not parts.scheme and parts.path and not exists(adapter, parts.path, "GET"):
            found.append(f"it links to {link}")
    for form in document.findall(".//form"):
        method, action = form.get("method", "get").upper(), form.get("action", "")
        if method == "POST":
            if not action or not exists(adapter, action.partition("?")[0], "POST"):
                found.append(f"a form posts to {action!r}")
            if form.find(".//input[@name='form_token']") is None or form.find(".//input[@name='form_key']") is None:
                found.append(f"the form to {action} has no token or key")
        names = [each.get("name") for each in form.xpath(".//input|.//select|.//textarea") if each.get("type") != "radio"]
        if len(names) != len(set(names)):
            found.append(f"the form to {action} has a name twice: {names}")
    return found


def exists(adapter: object, path: str, method: str) -> bool:
    try:
        adapter.match(path, method=method)  # type: ignore[attr-defined]
    except RequestRedirect:
        return True
    except HTTPException:
        return False
    return True


async def test_each_put_under_show_as_curl_sends_all_that_is_stored(app: QuartTrio, pool: Pool, world: World) -> None:
    """It replaces a document, so a field that it left out would be cleared."""
    views, lacking, complete = dict(operations_of(app)), [], 0
    bodies = {name: getattr(view, QUART_SCHEMA_REQUEST_ATTRIBUTE, (None,))[0] for name, view in views.items()}
    for page in await opened_pages(app, pool, world):
        route = page.route.removesuffix(EMPTY)
        commands = html.document_fromstring(page.answer.text).xpath('//details[@class="curl"]//pre')
        for operation, command in zip(docs_of(views[route]).api, commands, strict=False):
            model = bodies.get(operation)
            if operation.startswith("PUT") and model is not None and operation.replace("PUT", "GET", 1) in views.keys() - NO_DOCUMENT:
                words = shlex.split(command.text_content())
                body = json.loads(words[words.index("--json") + 1])
                complete += 1
                lacking += [f"{page.route}: {name}" for name in model.model_fields.keys() - body.keys() - NOT_STORED]
                lacking += [f"{page.route} sends an example"] if body == example_of(model) else []
    assert not lacking
    assert complete > 5


async def test_no_form_of_another_site_changes_anything(app: QuartTrio, pool: Pool, world: World) -> None:
    """Neither a form without the session's token, nor a form that another site sends."""
    wrong = []
    for route, view in operations(app).items():
        if not route.startswith("POST"):
            continue
        request, caller = REQUESTS.get(route, Request(form={})), caller_of(world, view)
        await prepare(pool, request, caller)
        start = await mark(pool)
        for token in ({}, {"form_token": "0" * 64}):
            forged = Request(form={**{k: v for k, v in (request.form or {}).items() if k != "form_token"}, **token}, things=request.things)
            answer = await call(app, route, forged, caller)
            changes = await changes_since(pool, start)
            if answer.status != 403 or changes:
                wrong.append(f"{route}: {answer.status} {re.sub('<[^>]+>', ' ', answer.text)[-80:]} {changes}")
        await undo(pool)
    assert not wrong, "\n".join(wrong)
