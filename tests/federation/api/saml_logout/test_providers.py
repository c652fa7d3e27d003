"""Sign-outs that go on at an organization's identity provider (RP-Initiated Logout 1.0)."""

from urllib.parse import parse_qs, urlsplit

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.federation.connections.model.logins import ConnectionLogin
from core.federation.connections.sign_out import logout_url
from core.kernel.proofs import Method, Proof, first_proof
from ports import Ports
from tests.support.browser import FakeBrowser, leads_to
from tests.support.builders import BASE_URL, add_organization
from tests.support.connections import add_connection, add_login
from tests.support.connections.proofs import write_proofs
from tests.support.saml import SamlApplication, logout_response, redirect_url
from tests.support.saml.browser import RedirectedMessage, SamlBrowser, redirect_target, sign_out

LOGOUT = {"client_id": "gatehouse", "id_token": "a.b.c", "end_session_endpoint": "https://okta.example/logout?tenant=1"}


@pytest.fixture
async def login(ports: Ports, pool: Pool, browser: SamlBrowser, user: Account) -> ConnectionLogin:
    """The browser session's sign-in at a connection, beside its password."""
    connection = await add_connection(ports.storage, await add_organization(pool, "with-okta"))
    login = await add_login(ports.storage, connection, user.id, logout=LOGOUT)
    await browser.sign_in()
    now = ports.clock.now()
    proof = Proof(Method.CONNECTION, now, connection=connection.id, org=connection.org_id, login=login.id)
    await write_proofs(pool, user.id, (first_proof("password", now), proof))
    return login


def path_of(login: ConnectionLogin, endpoint: str) -> str:
    return f"/auth/connections/{login.connection_id}/{endpoint}"


async def at_provider(browser: FakeBrowser, login: ConnectionLogin) -> str:
    """Go on to the provider, and return the state."""
    url = leads_to(await browser.open(path_of(login, "sign-out")))
    sent = {name: value for name, [value] in parse_qs(urlsplit(url).query).items()}
    state = sent.pop("state")
    assert url.startswith("https://okta.example/logout?tenant=1&")
    redirect_uri = BASE_URL + path_of(login, "signed-out")
    assert sent == {"tenant": "1", "client_id": "gatehouse", "id_token_hint": "a.b.c", "post_logout_redirect_uri": redirect_uri}
    return state


async def test_a_sign_out_goes_on_at_the_identity_provider(browser: SamlBrowser, login: ConnectionLogin, app: QuartTrio) -> None:
    refresh = f'<meta http-equiv="refresh" content="0;url={path_of(login, "sign-out")}">'
    assert refresh in (await sign_out(browser, next="/app/account/devices")).text
    assert not await browser.is_in(), "whatever the provider does"
    assert refresh in (await browser.send("/app/sign-out")).text, "a second click continues the first"
    state = await at_provider(browser, login)
    back = path_of(login, "signed-out")
    stranger = FakeBrowser(app)
    findings = [await stranger.open(path_of(login, "sign-out")), await stranger.open(f"{back}?state={state}")]
    findings += [await browser.open(back), await browser.open(f"{back}?state=other")]
    assert [leads_to(answer) for answer in findings] == ["/app"] * 4, "no sign-out to finish"
    page = (await browser.open(f"{back}?state={state}")).text
    assert ("next=%2Fapp%2Faccount%2Fdevices" in page, "You're signed out" in page, "Your identity provider" in page) == (True,) * 3
    assert leads_to(await browser.open(f"{back}?state={state}")) == "/app", "it works once"
    assert "gatehouse-provider-logout" not in browser.cookies


async def test_applications_sign_out_before_the_identity_provider(
    browser: SamlBrowser, login: ConnectionLogin, shop: SamlApplication
) -> None:
    await browser.sign_on(shop)
    assert f"url={shop.path}/slo" in (await sign_out(browser)).text
    message = RedirectedMessage(redirect_target(await browser.open(f"{shop.path}/slo")))
    response = logout_response(shop, browser.now(), message.root.get("ID"))
    step = await browser.open(redirect_target(await browser.open(redirect_url(f"{shop.path}/slo", response, "SAMLResponse"))))
    assert leads_to(step) == path_of(login, "sign-out")
    await at_provider(browser, login)


async def test_the_page_about_an_application_that_did_not_answer_leads_on(
    browser: SamlBrowser, login: ConnectionLogin, shop: SamlApplication
) -> None:
    await browser.sign_on(shop)
    await sign_out(browser)
    for _ in range(2):
        redirect_target(await browser.open(f"{shop.path}/slo"))
    page = (await browser.open(f"{shop.path}/slo")).text
    assert "Some applications didn't confirm" in page
    assert f'href="{path_of(login, "sign-out")}"' in page


def test_a_provider_without_a_page_for_sign_outs_gets_none() -> None:
    assert logout_url({"client_id": "gatehouse", "id_token": "a.b.c"}, "https://id.example", "s") is None
