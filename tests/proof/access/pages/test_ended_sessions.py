"""Console forms after the end of their session: none is sent when the user comes back, and forms with fields are shown (decision 441)."""

from typing import Any

import pytest
from lxml import html
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.authentication.forms import seal_owner
from core.kernel.callers import Member, OrganizationContext, OrganizationStatus, Person
from core.kernel.roles import OWNER, rights_of
from core.kernel.values import new_id
from entrypoints.http.edge.access.declaration import access_of
from entrypoints.http.edge.reauthentication import LEFT_OUT, RESTORES_ATTRIBUTE
from ports import Ports
from tests.proof.access.calls import Request, call, prepare, routes, without_variant
from tests.proof.access.console import CONSOLE, DONE
from tests.proof.access.pages.opening import opened_pages
from tests.proof.access.state import changes_since, mark, undo
from tests.proof.access.table import REQUESTS, read_matrix
from tests.proof.access.world import Caller, World
from tests.support.builders import application, run_sql

pytestmark = pytest.mark.slow

BROWSERS = ("browser", "admin-browser", "platform-browser", "suspended-browser")
VIEWS = dict(routes(application()))
TABLE = read_matrix()
FORMS = [
    (route, name)
    for route in TABLE
    if route.startswith("POST") and access_of(VIEWS[without_variant(route)]).name in CONSOLE
    for name in [next((name for name in BROWSERS if TABLE[route].get(name) in (DONE, "200", "303")), None)]
    if name is not None
]


def owner_of(ports: Ports, caller: Caller, route: str) -> str:
    """Return the sealed owner in a form on this caller's page."""
    assert caller.account is not None
    user: dict[str, Any] = {"user_id": caller.account.id, "email": caller.account.email, "email_verified": True, "session_id": new_id()}
    if "<org_slug>" not in route:
        return seal_owner(ports, Person(**user))
    organization = caller.at.organization
    context = OrganizationContext(organization.id, organization.slug, OrganizationStatus.ACTIVE, OWNER, rights_of(OWNER))
    return seal_owner(ports, Member(**user, acts_in=context))


@pytest.mark.parametrize("piece", range(4))
async def test_no_form_of_an_ended_session_is_sent(piece: int, app: QuartTrio, pool: Pool, ports: Ports, world: World) -> None:
    wrong: list[str] = []
    for route, browser in FORMS[piece::4]:
        request, caller = REQUESTS.get(route, Request()), world.callers[browser]
        await run_sql(pool, "delete from rates")
        await prepare(pool, request, caller)
        before = await mark(pool)
        fields = {**(request.form or {}), "form_token": "0" * 64, "form_of": owner_of(ports, caller, route)}
        sent = Request(form=fields, query=request.query, things=request.things, cookies=request.cookies)
        answer = await call(app, route, sent, caller)
        changed = {table for table, _ in (await changes_since(pool, before)).got}
        is_shown = answer.status == 400 and "so nothing was sent" in answer.text
        is_lost = answer.status == 303 and "form-not-sent" in answer.headers.get("Set-Cookie", "")
        can_return = getattr(VIEWS[without_variant(route)], RESTORES_ATTRIBUTE, False)
        if changed or (is_shown, is_lost) != (can_return, not can_return):
            wrong.append(f"{route} as {browser}: {answer.status}, it changed {changed}")
        await undo(pool)
    assert not wrong, "\n".join(wrong)


def test_most_forms_with_fields_come_back() -> None:
    returning = [route for route, _ in FORMS if getattr(VIEWS[without_variant(route)], RESTORES_ATTRIBUTE, False)]
    assert (len(returning) > 40, len(FORMS) > len(returning)) == (True, True), (len(returning), len(FORMS))


async def test_the_fields_that_hide_what_is_typed_and_codes_do_not_come_back(app: QuartTrio, pool: Pool, world: World) -> None:
    hidden: set[str] = set()
    for page in await opened_pages(app, pool, world):
        tree = html.document_fromstring(page.answer.text)
        hidden |= set(tree.xpath("//input[@type='password' or @type='file' or @autocomplete='one-time-code']/@name"))
    assert hidden <= LEFT_OUT
