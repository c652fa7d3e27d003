"""Parameters in an authorization request that lead to a connection (OpenID Connect Core section 3.1.2.1; RFC 9126)."""

import re
from base64 import b64encode
from html import unescape
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from adapters.postgres.engine.pool import Pool
from tests.federation.connections.routing.conftest import WAYS, RoutedWorld
from tests.support.browser import FakeBrowser, is_step, leads_to
from tests.support.builders import Answer, run_sql
from tests.support.direct import ask
from tests.support.services import add_service
from tests.support.tenants import Tenant

CALLBACK = "https://shop.example.com/callback"
SECRET = "a client secret"
SHOP = {"org": "acme", "service": "shop", "redirect_uri": CALLBACK, "response_type": "code", "state": "s"}

PAGE = "the sign-in page"
ERROR = "invalid_request"
# Parameters in a request for acme's application, or with None for the platform itself, and where they lead.
REQUESTS: list[tuple[dict[str, str] | None, dict[str, str], str]] = [
    (SHOP, {"connection": "acme-okta"}, "acme-okta"),
    (SHOP, {"connection": "acme-entra", "organization": "acme"}, "acme-entra"),
    (SHOP, {"organization": "acme"}, PAGE),  # it has two active connections
    (SHOP, {"organization": "acme", "domain_hint": "eu.acme.example"}, "acme-entra"),
    (SHOP, {"connection": "acme-okta", "domain_hint": "eu.acme.example"}, "acme-okta"),
    (SHOP, {"domain_hint": "ACME.example"}, "acme-okta"),
    (SHOP, {"domain_hint": "twin.example"}, PAGE),  # its sign-ins do not count here
    (SHOP, {"domain_hint": "unproved.example"}, PAGE),
    (SHOP, {"domain_hint": "acme"}, ERROR),
    (SHOP, {"login_hint": "4711"}, PAGE),
    (SHOP, {"connection": "acme-draft"}, ERROR),
    (SHOP, {"connection": "acme-former"}, ERROR),
    (SHOP, {"connection": "twin-okta"}, ERROR),
    (SHOP, {"connection": "codehost"}, ERROR),
    (SHOP, {"connection": "x"}, ERROR),
    (SHOP, {"organization": "twin"}, ERROR),
    (SHOP, {"organization": "x"}, ERROR),
    (SHOP, {"organization": "a\0b"}, ERROR),
    (None, {"organization": "twin", "connection": "twin-entra"}, "twin-entra"),
    (None, {"connection": "twin-entra"}, "400"),
    (None, {"organization": "x"}, "400"),
    (None, {"domain_hint": "twin.example"}, "twin-okta"),
]


async def find_way(browser: FakeBrowser, world: RoutedWorld, fields: dict[str, str]) -> str:
    """Return the slug of the connection to which a request leads, or the error."""
    answer = await browser.open(f"/auth/authorize?{urlencode(fields)}", follows=False)
    if answer.status == 400:
        return "400"
    return way_of(answer, world, fields)


def way_of(answer: Answer, world: RoutedWorld, fields: dict[str, str]) -> str:
    target = urlsplit(leads_to(answer))
    query = parse_qs(target.query)
    if target.hostname is not None:
        assert leads_to(answer).startswith(CALLBACK)
        return query["error"][0]
    if is_step(target.path, "sign-in"):
        return PAGE
    assert set(query) == {"flow"} | {"login_hint", "domain_hint"} & set(fields)
    return next(slug for slug in world.connections if world.start_of(slug) == target.path)


@pytest.fixture
async def client_id(acme: Tenant, world: RoutedWorld, pool: Pool) -> str:
    await add_service(pool, acme.org, "shop", secret=SECRET)
    return str((await run_sql(pool, "select client_id from services"))[0][0])


@pytest.mark.slow
async def test_parameters_lead_to_a_connection(app: Any, browser: FakeBrowser, world: RoutedWorld, client_id: str, acme: Tenant) -> None:
    """A pushed request leads to the same place, or is refused when it is pushed."""
    cases = [*REQUESTS, (SHOP, {"organization": str(acme.org), "connection": "acme-okta"}, "acme-okta")]
    cases += [(None, {"organization": str(acme.org), "connection": "acme-okta"}, "acme-okta")]
    # An application leads only to its own organization's connections.
    ways = {email.strip(): slug if (slug or "").startswith("acme") else PAGE for email, slug in WAYS.items()}
    cases += [(SHOP, {"login_hint": email}, slug or PAGE) for email, slug in ways.items()]
    found = [(client, fields, await find_way(browser, world, {**(client or {}), **fields})) for client, fields, _ in cases]
    assert found == cases
    silent = [await find_way(browser, world, {**SHOP, **fields, "prompt": "none", "scope": "openid"}) for _, fields, _ in REQUESTS[:18]]
    assert silent == [ERROR if way == ERROR else "login_required" for _, _, way in REQUESTS[:18]]
    basic = b"Basic " + b64encode(f"{client_id}:{SECRET.replace(' ', '+')}".encode())
    for client, fields, way in cases:
        if client is None or "\0" in fields.get("organization", ""):
            continue
        body = {name: value for name, value in {**SHOP, **fields}.items() if name not in ("org", "service")}
        headers = [(b"content-type", b"application/x-www-form-urlencoded"), (b"authorization", basic)]
        pushed = await ask(app, "POST", "/auth/par", headers=headers, body=urlencode(body).encode())
        assert pushed.status == (400 if way == ERROR else 201), (fields, pushed.text)
        if way == ERROR:
            assert pushed.json["error"] == ERROR
        else:
            sent = {"client_id": client_id, "request_uri": pushed.json["request_uri"]}
            answer = await browser.open(f"/auth/authorize?{urlencode(sent)}", follows=False)
            assert way_of(answer, world, fields) == way, fields


async def test_the_page_of_the_flow_offers_the_connections(browser: FakeBrowser, world: RoutedWorld, client_id: str, acme: Tenant) -> None:
    """The request's hints go on from there."""
    hints = {"login_hint": "grace@us.acme.example", "domain_hint": "us.acme.example"}  # has no route
    page = await browser.open(f"/auth/authorize?{urlencode({**SHOP, 'organization': 'acme', **hints})}")
    assert [f"Continue with {name}" in page.text for name in ("Acme-Okta", "Acme-Entra", "Acme-Draft")] == [True, True, False]
    [path] = re.findall(f'href="({world.start_of("acme-okta")}[^"]+)"', page.text)
    query = parse_qs(urlsplit(unescape(path)).query)
    assert {name: query.get(name) for name in hints} == {name: [hint] for name, hint in hints.items()}
    # The user comes back from the connection, and can choose another way.
    start = leads_to(await browser.open(f"/auth/authorize?{urlencode({**SHOP, 'connection': 'acme-okta'})}", follows=False))
    [flow] = parse_qs(urlsplit(start).query)["flow"]
    page = await browser.open(f"/app/flow/{flow}/sign-in")
    assert "Continue with Acme-Okta" in page.text
    await acme.set_status("suspended")
    assert (await browser.open(f"/auth/authorize?{urlencode({**SHOP, 'connection': 'acme-okta'})}")).status == 403
