"""Forms with the access matrix's values, as people type and paste them: nothing else happens than with the values as issued."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import pytest
from lxml import html
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from entrypoints.http.edge import typed_fields
from entrypoints.http.edge.typed_fields import READERS
from tests.proof.access.calls import Request, call, filled, prepare
from tests.proof.access.pages.opening import caller_of, operations
from tests.proof.access.state import mark, undo
from tests.proof.access.table import OF_THE_SESSION, REQUESTS
from tests.proof.access.world import World
from tests.support.browser import FLOW
from tests.support.builders import run_sql

pytestmark = pytest.mark.slow

AS_PEOPLE_TYPE: Final[dict[Callable[[str], str], Callable[[str], str]]] = {
    typed_fields.to_code: lambda text: f" {text[:3]} {text[3:].replace('-', '')} ".lower(),
    typed_fields.trim: lambda text: f"\u00a0{text}\r\n",
    typed_fields.to_slug: lambda text: f" {text.upper()} ",
    typed_fields.to_domain: lambda text: f"https://{text}./",
    typed_fields.to_domains: lambda text: f"\r\n  https://{text}",
    typed_fields.to_host: lambda text: f" {text}. ",
    typed_fields.to_certificate: lambda text: text.replace("\n", "\r\n"),
}
USER_CODE: Final = "user_code"  # `normalize_user_code` reads it
NEW_ORGANIZATION: Final = "POST /app/organizations/new"
# A recovery's wrong link and wrong code get the same answers as a right link and code (security M-8): tests/authentication/api/recovery.
SAME_ANSWERS: Final = {"GET /auth/recover", "POST /auth/recover", "POST /auth/recover/<recovery_id>/app"}
EMAILED: Final = {"POST /setup/code"}  # the world has no set-up link code: tests/setup/test_links.py
TRIED: Final = {route: request for route, request in REQUESTS.items() if route not in SAME_ANSWERS | EMAILED}
FORMS: Final = {**TRIED, NEW_ORGANIZATION: Request(form={**OF_THE_SESSION, "name": "Novel", "slug": "novel"})}
FIELDS: Final = frozenset({*READERS, USER_CODE})


def typed(name: str, value: str) -> str:
    return f" {value.lower()} " if name == USER_CODE else AS_PEOPLE_TYPE[READERS[name]](value)


async def test_every_form_takes_what_people_type(app: QuartTrio, pool: Pool, world: World) -> None:
    wrong, tried = [], set()
    for route, name in ((route, name) for route, request in FORMS.items() for name in request.form or () if name in FIELDS):
        caller, request = world.callers["browser"], FORMS[route]
        form = filled(request.form, {**caller.things, **filled(request.things, caller.things)})
        outcomes = []
        for value in (form[name], typed(name, form[name])):
            start = await mark(pool)
            await run_sql(pool, "delete from rates")
            await prepare(pool, request, caller)
            sent = {key: text.replace("{", "{{").replace("}", "}}") for key, text in {**form, name: value}.items()}
            answer = await call(app, route, replace(request, form=sent), caller)
            await undo(pool, start)
            outcomes.append((answer.status, FLOW.sub(r"/app/flow/id\1", answer.headers.get("Location", "").partition("?")[0])))
        tried.add((route, name))
        if outcomes[0] != outcomes[1] or outcomes[0][0] == 400:
            wrong.append(f"{route} {name}: {outcomes}")
    assert not wrong, "\n".join(wrong)
    assert FIELDS - {name for _, name in tried} == {"email_code", "slo_certificate"}, "tests/edge/test_typed_fields.py has these"


async def test_every_link_works_with_what_was_copied_with_it(app: QuartTrio, pool: Pool, world: World) -> None:
    """A terminal wraps long links, and programs add the punctuation that follows."""
    links = {route: request for route, request in TRIED.items() if route.startswith("GET") and "token" in request.query}
    caller, wrong = world.callers["browser"], []
    for route, request in links.items():
        token = filled(request.query["token"], caller.things)
        statuses = []
        for value in (token, f" {token[:9]}\r\n    {token[9:]}>.", f"x{token}"):
            start = await mark(pool)
            answer = await call(app, route, replace(request, query={"token": value}), caller)
            statuses.append((answer.status, answer.headers.get("Location")))
            await undo(pool, start)
        if statuses[0] != statuses[1] or statuses[0] == statuses[2]:
            wrong.append(f"{route}: {statuses}")
    assert not wrong, "\n".join(wrong)
    assert len(links) > 5


async def test_every_filter_of_a_list_takes_what_was_copied_with_it(app: QuartTrio, world: World) -> None:
    wrong, tried = [], set()
    for route, view in operations(app).items():
        request, caller = REQUESTS.get(route, Request()), caller_of(world, view)
        if not route.startswith("GET"):
            continue
        page = html.document_fromstring((await call(app, route, request, caller)).text or "<p>")
        for name in {*page.xpath("//form[@class='filters']//input[not(@type='hidden' or @type='date')]/@name")}:
            tried.add(name)
            value = caller.things["user_id"] if name.endswith("_id") else "openid" if name == "scope" else "an"
            shown = []
            for typed_text in (value, f"\u00a0{value}\u200b\r\n"):
                answer = await call(app, route, replace(request, query={**request.query, name: typed_text}), caller)
                text = html.document_fromstring(answer.text).xpath("string(//main)")
                shown.append((answer.status, re.sub(r'"sid": ".*"', "", text)))  # a preview makes up a session
            if shown[0] != shown[1]:
                wrong.append(f"{route} {name}")
    assert not wrong, "\n".join(wrong)
    assert {"search", "email", "user_id", "scope"} <= tried
