"""Requests whose page no user sees: HEAD, pages fetched ahead, and frames. They begin no sign-in."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
from quart_trio import QuartTrio

from adapters.http.providers import HttpProviders
from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.kernel.connections import WEBSUITE
from ports import Ports
from ports.outside import IdentityProviders
from tests.fakes.outside import FakeClock
from tests.fakes.provider import FakeProvider
from tests.federation.api.relying import RelyingParty, redirect_parts, sign_in_browser
from tests.support.browser import AGENT, HTML, FakeBrowser
from tests.support.builders import run_sql
from tests.support.direct import ask
from tests.support.saml import SamlApplication, add_application, authn_request, encode_base64, redirect_url
from tests.support.tenants import Tenant


@dataclass(frozen=True, slots=True)
class Unseen:
    """A request whose page no user sees."""

    method: str = "GET"
    headers: Mapping[str, str] = field(default_factory=dict)


UNSEEN: Final = (
    Unseen("HEAD"),
    Unseen(headers={"Sec-Purpose": "prefetch"}),
    Unseen(headers={"Sec-Purpose": "prefetch;prerender"}),
    Unseen(headers={"Sec-Purpose": "prefetch;anonymous-client-ip"}),
    Unseen(headers={"Sec-Purpose": "prerender"}),
    *(Unseen(headers={"Sec-Fetch-Dest": destination}) for destination in ("iframe", "frame", "embed", "object")),
)
# Rows that a sign-in leaves when it begins.
BEGUN: Final = """
    select (select count(*) from sign_in_flows), (select count(*) from provider_states), (select count(*) from saml_sign_ons),
           (select count(*) from client_assertions), (select count(*) from link_tickets)"""


@pytest.fixture
def provider(clock: FakeClock) -> Iterator[FakeProvider]:
    with FakeProvider(WEBSUITE, now=lambda: clock.now().timestamp()) as running:
        yield running


@pytest.fixture
def providers(provider: FakeProvider, clock: FakeClock) -> IdentityProviders:
    return HttpProviders([provider.connection()], clock)


@pytest.fixture
async def saml_shop(ports: Ports, pool: Pool, acme: Tenant) -> SamlApplication:
    return await add_application(ports, pool, acme.org, acme.slug, "kiosk")


async def findings(app: QuartTrio, pool: Pool, browser: FakeBrowser, path: str) -> list[tuple[Unseen, int, tuple[Any, ...]]]:
    """Return the unseen requests of this path that fail or begin a sign-in."""
    wrong = []
    cookies = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
    for unseen in UNSEEN:
        headers = [HTML, AGENT, (b"cookie", cookies.encode()), *((k.lower().encode(), v.encode()) for k, v in unseen.headers.items())]
        answer = await ask(app, unseen.method, path, headers=headers)
        [begun] = await run_sql(pool, BEGUN)
        if (answer.status, any(begun)) != (200 if unseen.method == "HEAD" else 403, False):
            wrong.append((unseen, answer.status, begun))
    return wrong


async def test_an_authorization_request_begins_no_sign_in(
    app: QuartTrio, pool: Pool, relying_party: RelyingParty, user: Account, browser: FakeBrowser
) -> None:
    browser.cookies.clear()
    assert await findings(app, pool, browser, relying_party.request()) == []
    await sign_in_browser(relying_party, user)
    needs_consent = relying_party.request(scope="openid", response_type="code")
    assert await findings(app, pool, browser, needs_consent) == []
    assert (await browser.open(needs_consent)).status == 200
    [begun] = await run_sql(pool, "select count(*) from sign_in_flows")
    assert begun == (1,)


async def test_a_silent_request_in_a_frame_is_answered(relying_party: RelyingParty, browser: FakeBrowser) -> None:
    silent = relying_party.request(scope="openid", response_type="code", prompt="none")
    _, signed_in = redirect_parts(await browser.open(silent, (b"sec-fetch-dest", b"iframe")))
    browser.cookies.clear()
    _, signed_out = redirect_parts(await browser.open(silent, (b"sec-fetch-dest", b"iframe")))
    assert (signed_in["error"], signed_out["error"]) == ("consent_required", "login_required")


async def test_a_trip_to_a_provider_does_not_begin(app: QuartTrio, pool: Pool, provider: FakeProvider, browser: FakeBrowser) -> None:
    assert await findings(app, pool, browser, "/auth/websuite?next=/app/account") == []
    assert provider.requests == []
    assert (await browser.open("/auth/websuite?next=/app/account")).status == 302


async def test_a_saml_sign_on_does_not_begin(
    app: QuartTrio, pool: Pool, clock: FakeClock, saml_shop: SamlApplication, browser: FakeBrowser
) -> None:
    path, request = f"{saml_shop.path}/sso", authn_request(saml_shop, clock.now())
    address = redirect_url(path, request)
    assert await findings(app, pool, browser, address) == []
    for destination in (b"iframe", b"frame", b"embed", b"object"):
        fields = {"SAMLRequest": encode_base64(request)}
        posted = await browser.send(path, (b"sec-fetch-dest", destination), **fields)
        assert posted.status == 403
    [begun] = await run_sql(pool, BEGUN)
    assert not any(begun)
    assert (await browser.open(address)).status == 302, "the request was not used up"


async def test_a_saml_sign_in_that_starts_here_does_not_begin(
    app: QuartTrio, pool: Pool, saml_shop: SamlApplication, browser: FakeBrowser
) -> None:
    path = f"/api/organizations/{saml_shop.org_slug}/services/{saml_shop.slug}/saml/login"
    assert await findings(app, pool, browser, path) == []
    assert (await browser.open(path)).status == 200, "the sign-in page"
