"""What every form does with a value that no field takes: it changes nothing, and marks the field."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, get_args

import pytest
from lxml import html
from quart_schema.validation import QUART_SCHEMA_REQUEST_ATTRIBUTE
from quart_trio import QuartTrio
from werkzeug.exceptions import HTTPException

from adapters.postgres.engine.pool import Pool
from core.kernel.values import KEEP
from entrypoints.http.edge.openapi import docs_of
from tests.proof.access.calls import Request, call, prepare, routes
from tests.proof.access.pages.opening import EMPTY, caller_of, opened_pages, operations
from tests.proof.access.state import Changes, changes_since, mark, undo
from tests.proof.access.table import REQUESTS
from tests.proof.access.world import World
from tests.support.builders import Answer, run_sql

pytestmark = pytest.mark.slow

WRONG: Final = {"too many characters": "x" * 70_000, "a NUL character": "a\x00b"}
REFUSED: Final = (400, 401)  # a wrong password is a 401
# The pages' own rules, and texts that can be empty in the API, too.
MAY_BE_EMPTY: Final = {"slug": "made from the name", "domains": "no routes", "scopes": "no scopes", "description": "none"}
NOT_TYPED: Final = "ancestor-or-self::*[@hidden]"


@dataclass(frozen=True, slots=True)
class Form:
    """A form on a page: the route that it posts to, its hidden fields and lists, and its texts, all with their values.

    `setup_sql` prepared the world for the page.
    """

    route: str
    fixed: Mapping[str, str]
    fields: Mapping[str, str]
    setup_sql: str


async def test_every_field_refuses_what_it_cannot_take(app: QuartTrio, pool: Pool, world: World) -> None:
    found = []
    forms = await forms_of_pages(app, pool, world)
    for form in forms:
        for field in form.fields:
            wrong = {**WRONG, "nothing": " "} if cannot_be_empty(app, form.route, field) else WRONG
            for name, value in wrong.items():
                if finding := await send(app, pool, world, form, field, value):
                    found.append(f"{form.route} {field} with {name}: {finding}")
    assert not found, "\n".join(found)
    assert len(forms) > 30


def cannot_be_empty(app: QuartTrio, route: str, field: str) -> bool:
    """Return whether the API takes a text in this field, and neither null nor a request without it, unless that changes nothing."""
    views = dict(routes(app))
    operation = next(iter(docs_of(views[route]).api), "")
    model = getattr(views.get(operation), QUART_SCHEMA_REQUEST_ATTRIBUTE, (None,))[0]
    if model is None or field not in model.model_fields or field in MAY_BE_EMPTY:
        return False
    declared = model.model_fields[field]
    return (declared.is_required() or declared.default is KEEP) and type(None) not in get_args(declared.annotation)


async def send(app: QuartTrio, pool: Pool, world: World, form: Form, field: str, value: str) -> str | None:
    """Send the form with this value in a field, undo what it changes, and return the answer's fault, or None."""
    request, caller = REQUESTS.get(form.route, Request(form={})), caller_of(world, operations(app)[form.route])
    request = replace(request, setup_sql=request.setup_sql or form.setup_sql)
    # A script fills empty hidden fields.
    sent = {**form.fields, **(request.form or {}), **{name: text for name, text in form.fixed.items() if text}, field: value}
    await run_sql(pool, "delete from rates")
    await prepare(pool, request, caller)
    start = await mark(pool)
    answer = await call(app, form.route, Request(form=sent, things=request.things, cookies=request.cookies), caller)
    finding = what_is_wrong(answer, field, await changes_since(pool, start))
    await undo(pool)
    return finding


def what_is_wrong(answer: Answer, field: str, changes: Changes) -> str | None:
    if answer.status not in REFUSED or changes:
        return f"{answer.status} {changes}"
    document = html.document_fromstring(answer.text)
    marked = document.xpath("//*[@aria-invalid='true']/@name")
    reason = document.xpath("string(//*[@role='alert'])")
    return None if marked == [field] else f"the page marks {marked}: {reason}"


async def forms_of_pages(app: QuartTrio, pool: Pool, world: World) -> list[Form]:
    """Return the forms with texts that the user types, without repetition."""
    found: dict[tuple[str, ...], Form] = {}
    adapter, names = app.url_map.bind("localhost"), {id(view): route for route, view in routes(app)}
    for page in await opened_pages(app, pool, world):
        setup_sql = REQUESTS.get(page.route.removesuffix(EMPTY), Request()).setup_sql
        for form in html.document_fromstring(page.answer.text).xpath("//form[@method='post']"):
            try:
                endpoint, _ = adapter.match(form.get("action").partition("?")[0], method="POST")
            except HTTPException:
                continue
            route = names[id(app.view_functions[endpoint])]
            lists = {each.get("name"): each.value or each.value_options[0] for each in form.xpath(".//select")}
            fixed = lists | {
                each.get("name"): each.get("value") for each in form.xpath(".//input[@type='hidden'][not(starts-with(@name, 'form_'))]")
            }
            inputs = form.xpath(f".//textarea | .//input[not(contains('hidden checkbox radio file submit', @type)) and not({NOT_TYPED})]")
            fields = {each.get("name"): as_template(each.text or each.get("value") or "") for each in inputs}
            if fields and route in operations(app):
                found.setdefault((route, *fixed.values()), Form(route, fixed, fields, setup_sql))
    return list(found.values())


def as_template(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")
