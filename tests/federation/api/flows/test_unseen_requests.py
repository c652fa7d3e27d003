"""Requests for pages that no user sees: HEAD, pages fetched ahead, and frames. Unseen requests begin no sign-in."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlencode

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.kernel.connections import WEBSUITE, PlatformCredentials
from entrypoints.http.pages.flow.flows import FLOW_PATH
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.fakes.provider import FakeProvider
from tests.federation.api.relying import RelyingParty, give_consent, redirect_parts, sign_in_browser
from tests.support.browser import AGENT, HTML, FakeBrowser, action_of
from tests.support.builders import BASE_URL, run_sql
from tests.support.direct import ask
from tests.support.saml import SamlApplication, add_application, authn_request, encode_base64, posted_response, redirect_url
from tests.support.tenants import Tenant


@dataclass(frozen=True, slots=True)
class Unseen:
    """A request for a page that no user sees."""

    method: str = "GET"
    headers: Mapping[str, str] = field(default_factory=dict)


# All destinations in the Fetch standard, except a tab's destination.
DESTINATIONS: Final = (
    *("audio", "audioworklet", "embed", "empty", "fencedframe", "font", "frame", "iframe", "image", "json", "manifest", "object"),
    *("paintworklet", "report", "script", "serviceworker", "sharedworker", "style", "text", "track", "video", "webidentity", "worker"),
    *("xslt", "another", ""),
)
UNSEEN: Final = (
    Unseen("HEAD"),
    Unseen(headers={"Sec-Purpose": "prefetch"}),
    Unseen(headers={"Sec-Purpose": "prefetch;prerender"}),
    Unseen(headers={"Sec-Purpose": "prefetch;anonymous-client-ip"}),
    Unseen(headers={"Sec-Purpose": "prerender"}),
    Unseen(headers={"Sec-Purpose": "another"}),
    *(Unseen(headers={"Sec-Fetch-Dest": destination}) for destination in DESTINATIONS),
)
# Rows that a sign-in leaves when it begins.
BEGUN: Final = """
    select (select count(*) from sign_in_flows), (select count(*) from client_assertions)"""


@pytest.fixture
def provider(clock: FakeClock) -> Iterator[FakeProvider]:
    with FakeProvider(WEBSUITE, now=lambda: clock.now().timestamp()) as running:
        yield running


@pytest.fixture
def providers(provider: FakeProvider) -> list[PlatformCredentials]:
    return [provider.connection()]


@pytest.fixture
async def saml_shop(ports: Ports, pool: Pool, acme: Tenant) -> SamlApplication:
    return await add_application(ports, pool, acme.org, acme.slug, "kiosk")


async def findings(app: QuartTrio, pool: Pool, browser: FakeBrowser, path: str) -> list[tuple[Unseen, int, tuple[Any, ...]]]:
    """Return this path's unseen requests that fail or begin a sign-in."""
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
    of_provider = relying_party.request(provider="websuite")
    for path in (relying_party.request(), of_provider):
        assert await findings(app, pool, browser, path) == [], path
    await sign_in_browser(relying_party, user)
    needs_consent = relying_party.request(scope="openid", response_type="code")
    for path in (needs_consent, of_provider):
        assert await findings(app, pool, browser, path) == [], path
    assert (await browser.open(needs_consent)).status == 200
    [begun] = await run_sql(pool, "select count(*) from sign_in_flows")
    assert begun == (1,)


async def test_head_runs_no_page_of_a_flow(
    app: QuartTrio, pool: Pool, relying_party: RelyingParty, user: Account, browser: FakeBrowser
) -> None:
    """The session is sufficient: GET would answer the application, and end the flow."""
    del browser.cookies["gatehouse-session"]
    path = action_of(await browser.open(relying_party.request(scope="openid", response_type="code"))).removesuffix("/sign-in")
    await give_consent(relying_party, user)
    await sign_in_browser(relying_party, user)
    rows = "select (select f::text from sign_in_flows f), (select count(*) from authorization_codes)"
    before = await run_sql(pool, rows)
    cookies = (b"cookie", "; ".join(f"{name}={value}" for name, value in browser.cookies.items()).encode())
    rules = [rule.rule for rule in app.url_map.iter_rules() if "GET" in (rule.methods or ()) and rule.rule.startswith(FLOW_PATH)]
    assert len(rules) == 11
    for page in (rule.replace(FLOW_PATH, path) for rule in rules):
        answer = await ask(app, "HEAD", page, headers=[HTML, AGENT, cookies])
        # Nothing asks for a link, so its page only leads back.
        expected = (303, True) if page.endswith("/link") else (200, False)
        assert (answer.status, "Location" in answer.headers) == expected, page
        assert await run_sql(pool, rows) == before, page
    assert "code" in redirect_parts(await browser.open(f"{path}/sign-in"))[1]


async def test_a_silent_request_in_a_frame_is_answered(relying_party: RelyingParty, browser: FakeBrowser) -> None:
    silent = relying_party.request(scope="openid", response_type="code", prompt="none")
    _, signed_in = redirect_parts(await browser.open(silent, (b"sec-fetch-dest", b"iframe")))
    browser.cookies.clear()
    _, signed_out = redirect_parts(await browser.open(silent, (b"sec-fetch-dest", b"iframe")))
    assert (signed_in["error"], signed_out["error"]) == ("consent_required", "login_required")


async def test_a_provider_request_does_not_begin(
    app: QuartTrio, pool: Pool, provider: FakeProvider, relying_party: RelyingParty, browser: FakeBrowser
) -> None:
    for query in ("next=/app/account", "", urlencode({"org": relying_party.tenant.slug, "service": relying_party.slug})):
        assert await findings(app, pool, browser, f"/auth/websuite?{query}") == [], query
    assert provider.requests == []
    assert (await browser.open("/auth/websuite?next=/app/account")).status == 302


async def test_a_saml_sign_on_does_not_begin(
    app: QuartTrio, pool: Pool, clock: FakeClock, saml_shop: SamlApplication, browser: FakeBrowser
) -> None:
    path, request = f"{saml_shop.path}/sso", authn_request(saml_shop, clock.now())
    address = redirect_url(path, request)
    assert await findings(app, pool, browser, address) == []
    for destination in DESTINATIONS:
        fields = {"SAMLRequest": encode_base64(request)}
        posted = await browser.send(path, (b"sec-fetch-dest", destination.encode()), **fields)
        assert posted.status == 403
    [begun] = await run_sql(pool, BEGUN)
    assert not any(begun)
    assert (await browser.open(address)).status == 302, "the request was not used up"


async def test_a_passive_saml_request_in_a_frame_is_answered(clock: FakeClock, saml_shop: SamlApplication, browser: FakeBrowser) -> None:
    """The response says that no user is signed in. Other requests without a tab, such as for a page fetched ahead, are refused."""
    browser.cookies.clear()
    request = authn_request(saml_shop, clock.now(), IsPassive="true")
    address, frame = redirect_url(f"{saml_shop.path}/sso", request), (b"sec-fetch-dest", b"iframe")
    for headers in ([(b"sec-fetch-dest", b"image")], [frame, (b"sec-purpose", b"prefetch")]):
        assert (await browser.open(address, *headers)).status == 403, headers
    begun = await browser.open(address, frame)
    assert begun.status == 302
    answer = await browser.open(begun.headers["Location"].removeprefix(BASE_URL), frame)
    assert posted_response(answer).statuses == ["Responder", "NoPassive"]


async def test_a_passive_saml_request_by_a_form_in_a_frame_is_answered(
    clock: FakeClock, saml_shop: SamlApplication, browser: FakeBrowser
) -> None:
    fields = {"SAMLRequest": encode_base64(authn_request(saml_shop, clock.now(), IsPassive="true"))}
    begun = await browser.send(f"{saml_shop.path}/sso", (b"sec-fetch-dest", b"iframe"), **fields)
    answer = await browser.open(begun.headers["Location"].removeprefix(BASE_URL), (b"sec-fetch-dest", b"iframe"))
    assert posted_response(answer).statuses == ["Responder", "NoPassive"]


async def test_a_saml_sign_in_that_starts_here_does_not_begin(
    app: QuartTrio, pool: Pool, saml_shop: SamlApplication, browser: FakeBrowser
) -> None:
    path = f"/api/organizations/{saml_shop.org_slug}/services/{saml_shop.slug}/saml/login"
    assert await findings(app, pool, browser, path) == []
    assert (await browser.open(path)).status == 200, "the sign-in page"
