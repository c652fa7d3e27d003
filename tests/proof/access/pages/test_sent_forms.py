"""Forms that make something, or show a secret: every copy works once, also if several are sent at once (security G-2, decision 410)."""

import re
from collections import Counter
from secrets import token_urlsafe

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from entrypoints.http.edge.access.declaration import access_of
from entrypoints.http.edge.openapi import docs_of
from entrypoints.http.pages.console_forms import ONCE_ATTRIBUTE
from tests.proof.access.calls import Request, call, prepare, routes, without_variant
from tests.proof.access.console import DONE
from tests.proof.access.state import changes_since, mark, state, undo
from tests.proof.access.table import REQUESTS, read_matrix
from tests.proof.access.world import World
from tests.support.builders import Answer, application, run_concurrently, run_sql
from tests.support.openapi import operations

pytestmark = pytest.mark.slow

COPIES = 5
OF_ALL_CERTIFICATES = 60.0  # seconds: their keys are generated one by one
BROWSERS = ("browser", "admin-browser", "platform-browser", "suspended-browser")
VIEWS = dict(routes(application()))
TABLE = read_matrix()
ONCE = {route for route, view in VIEWS.items() if getattr(view, ONCE_ATTRIBUTE, None) is not None}
# Forms that answer 200, or stand for an API operation that creates something, and why a second copy does no harm.
HARMLESS = {
    "POST /app/organizations/<org_slug>/connections/<connection_slug>": "the same settings are saved",
    "POST /app/organizations/<org_slug>/connections/<connection_slug>/groups": "the same mapping is refused",
    "POST /app/organizations/<org_slug>/connections/<connection_slug>/metadata": "the same metadata are saved",
    "POST /app/account/delete": "the account is gone",
    "POST /app/account/export": "a download",
    "POST /app/account/identities/<provider:provider>/link": "a way to an identity provider",
    "POST /app/account/passkeys/lost": "the wait has started then",
    "POST /app/account/two-factor/confirm": "the set-up ends with the first code",
    "POST /app/organizations/<org_slug>/applications/<service_slug>/authorization/document/preview": "a preview",
    "POST /app/organizations/<org_slug>/applications/<service_slug>/authorization/permissions": "the name is taken then",
    "POST /app/organizations/<org_slug>/applications/<service_slug>/saml": "a question",
    "POST /app/organizations/<org_slug>/applications/<service_slug>/saml/metadata": "nothing is saved",
    "POST /app/organizations/<org_slug>/applications/<service_slug>/claims/preview": "a preview",
    "POST /app/organizations/<org_slug>/branding/preview": "a preview",
    "POST /app/organizations/<org_slug>/connections/<connection_slug>/keys/certificates": "the connection has the certificate then",
    "POST /app/organizations/<org_slug>/connections/<connection_slug>/keys/client-secret": "the same secret is saved",
    "POST /app/organizations/<org_slug>/connections/<connection_slug>/test": "nothing is saved",
    "POST /app/organizations/<org_slug>/connections/<connection_slug>/test/provider": "the test sign-in is over",
    "POST /app/organizations/<org_slug>/sign-in-policy/preview": "a preview",
    "POST /app/platform/sign-in-policy/preview": "a preview",
    "POST /app/organizations/<org_slug>/applications/<service_slug>/sign-in-policy/preview": "a preview",
    "POST /app/organizations/<org_slug>/mail-server/test": "a test",
    "POST /app/organizations/<org_slug>/siem/test": "a test",
    "POST /app/organizations/<org_slug>/selected-people/cancel": "the invitations are canceled",
    "POST /app/organizations/<org_slug>/selected-people/end-sessions": "the sessions have ended",
    "POST /app/organizations/<org_slug>/selected-people/password-reset": "a recipient gets at most five emails an hour",
    "POST /app/organizations/<org_slug>/selected-people/remove": "the members are gone",
    "POST /app/organizations/<org_slug>/selected-people/resend": "the invitations are canceled, and new ones have other ids",
    "POST /app/organizations/<org_slug>/selected-people/role": "the members have the role",
    "POST /app/platform/people/<user_id>/export": "a download",
}


def path_of(route: str) -> str:
    """Return a route as the API description has it."""
    return re.sub("<(?:[a-z]+:)?([a-z_]+)>", r"{\1}", route)


def test_every_form_that_makes_something_works_once() -> None:
    documented = {f"{method} {path}": operation["responses"].keys() for method, path, operation in operations()}
    makes = set()
    for route, view in VIEWS.items():
        if route.startswith("POST /app/") and access_of(view).credentials.scheme == "cookie":
            main = next(iter(docs_of(view).api), "")
            if "200" in documented[path_of(route)] or (main.startswith("POST") and documented[path_of(main)] & {"201", "202"}):
                makes.add(route)
    assert makes - ONCE == set(HARMLESS)


def is_already_sent(answer: Answer) -> bool:
    return answer.status == 400 and "Already sent" in answer.text and "Nothing was changed now." in answer.text


def form_of(route: str, key: str, fields: dict[str, str] | None = None) -> Request:
    request = REQUESTS.get(route, Request())
    form = {**(request.form or {}), **(fields or {}), "form_key": key}
    return Request(form=form, things=request.things, cookies=request.cookies)


@pytest.mark.parametrize("route", sorted(route for route in TABLE if without_variant(route) in ONCE))
async def test_of_the_copies_of_a_form_one_makes_something(route: str, app: QuartTrio, pool: Pool, world: World) -> None:
    name = next(name for name in BROWSERS if TABLE[route].get(name) in (DONE, "200", "303"))
    caller, request = world.callers[name], REQUESTS.get(route, Request())
    await run_sql(pool, "delete from rates")
    await prepare(pool, request, caller)
    before = await mark(pool)
    direct = await call(app, route, form_of(route, token_urlsafe(16)), caller)
    once = Counter(table for table, _ in (await changes_since(pool, before)).got)
    await undo(pool)

    await prepare(pool, request, caller)
    key = token_urlsafe(16)
    before = await mark(pool)
    await run_sql(pool, "delete from rates")
    answers = await run_concurrently(COPIES, lambda _: call(app, route, form_of(route, key), caller, OF_ALL_CERTIFICATES))
    outcomes = Counter("sent" if is_already_sent(answer) else answer.status for answer in answers)
    assert outcomes[direct.status] == 1, outcomes
    assert outcomes["sent"] + outcomes[429] == COPIES - 1, outcomes
    assert outcomes["sent"] > 0
    await run_sql(pool, "delete from rates")
    assert is_already_sent(await call(app, route, form_of(route, key), caller)), "the first copy is in the way of no later one"
    made = Counter(table for table, _ in (await changes_since(pool, before)).got)
    made.pop("rates", None), once.pop("rates", None)
    assert made == once
    # The page leads to what the form has made.
    (again,) = [answer for answer in answers if is_already_sent(answer)][:1]
    (target,) = re.findall(r'<a class="button" href="([^"]+)"', again.text)[-1:]
    assert (await call(app, f"GET {target}", Request(), caller)).status == 200
    await undo(pool)
    assert await state(pool) == world.state
