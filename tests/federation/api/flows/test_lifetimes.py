"""How pending sign-ins end, and the data that they store."""

from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.authentication.flow.model import FLOW_TTL
from core.kernel.values import new_id
from core.maintenance import housekeeping
from ports import Ports
from tests.authentication.email_sign_ins import code_in, request_code, switch_on, verify
from tests.fakes.outside import FakeClock, FakeMailTransport
from tests.federation.api.relying import RelyingParty, redirect_parts
from tests.support.browser import action_of, has_ended, leads_to
from tests.support.builders import EMAIL, PASSWORD, Api, deliver, run_sql
from tests.support.mfa import Authenticator
from tests.support.saml import SamlApplication
from tests.support.saml.browser import SamlBrowser

HOURS = timedelta(hours=1)


@pytest.fixture
def browser(app: QuartTrio, clock: FakeClock) -> SamlBrowser:
    return SamlBrowser(app, clock)


async def sweep(ports: Ports, clock: FakeClock, **after: Any) -> None:
    clock.advance(timedelta(**after))
    await housekeeping.sweep(ports, new_id())


async def test_a_browsers_sign_in_lives_for_a_day_after_its_last_step(
    relying_party: RelyingParty, factor: Authenticator, clock: FakeClock, pool: Pool
) -> None:
    browser = relying_party.browser
    browser.cookies.clear()
    page = await browser.open(relying_party.request())
    clock.advance(23 * HOURS)
    page = await browser.open(leads_to(await browser.fill(page, email=EMAIL, password=PASSWORD)))
    assert await run_sql(pool, "select expires_at from sign_in_flows") == [(clock.now() + FLOW_TTL,)]
    clock.advance(timedelta(minutes=9))
    answer = await browser.fill(page, code=factor.code())
    assert await run_sql(pool, "select expires_at from sign_in_flows") == [(clock.now() + FLOW_TTL,)]
    clock.advance(23 * HOURS)
    assert redirect_parts(await browser.open(leads_to(answer)))[0] == relying_party.redirect_uri


async def test_what_a_browser_proved_goes_ten_minutes_later_and_its_sign_in_stays(
    relying_party: RelyingParty, factor: Authenticator, ports: Ports, clock: FakeClock, pool: Pool
) -> None:
    browser = relying_party.browser
    browser.cookies.clear()
    page = await browser.open(relying_party.request())
    code_page = leads_to(await browser.fill(page, email=EMAIL, password=PASSWORD))
    await sweep(ports, clock, minutes=11)
    assert await run_sql(pool, "select proofs, proofs_expire_at from sign_in_flows") == [([], None)]
    page = await browser.open(code_page)
    assert "<h1>Sign in" in page.text
    page = await browser.open(leads_to(await browser.fill(page, email=EMAIL, password=PASSWORD)))
    answer = await browser.fill(page, code=factor.code())
    assert redirect_parts(await browser.open(leads_to(answer)))[0] == relying_party.redirect_uri


async def test_the_sign_in_of_an_api_client_ends_with_its_token_and_its_request_is_in_the_token(
    api: Api, user: Account, factor: Authenticator, shop: SamlApplication, browser: SamlBrowser, ports: Ports, clock: FakeClock, pool: Pool
) -> None:
    [state] = parse_qs(urlsplit(await browser.start_sign_on(shop)).query)["saml_state"]
    login = {"email": EMAIL, "password": PASSWORD, "saml_state": state}
    token = (await api.post("/api/auth/login", login)).json["access_token"]
    rows = "select request, expires_at, proofs_expire_at from sign_in_flows where target = 'api'"
    assert await run_sql(pool, rows) == [("", clock.now() + ports.policy.pre_auth_ttl, clock.now() + ports.policy.pre_auth_ttl)]
    answer = await api.post("/api/auth/mfa/verify", {"code": factor.code()}, token=token)
    assert "ticket=" in answer.json["redirect_url"]
    await api.post("/api/auth/login", {"email": EMAIL, "password": PASSWORD})
    await sweep(ports, clock, hours=2)
    assert await run_sql(pool, rows) == []


async def test_the_email_of_an_api_client_ends_with_its_code(
    app: QuartTrio, api: Api, user: Account, factor: Authenticator, ports: Ports, clock: FakeClock, pool: Pool, sent: FakeMailTransport
) -> None:
    switch_on(app)
    token = await request_code(api)
    rows = "select expires_at, challenge_email from sign_in_flows"
    assert await run_sql(pool, rows) == [(clock.now() + ports.policy.email_sign_in_ttl, EMAIL)]
    await deliver(ports)
    clock.advance(timedelta(minutes=14))
    assert (await verify(api, token, code_in(sent.emails[-1]))).json["mfa_required"]
    assert await run_sql(pool, rows) == [(clock.now() + ports.policy.pre_auth_ttl, None)]
    await request_code(api)
    await sweep(ports, clock, minutes=16)
    assert await run_sql(pool, rows) == []


@pytest.mark.parametrize(
    "change",
    [
        "update services set redirect_uris = '{https://other.example/}'",
        "delete from services",
        "update organizations set status = 'suspended'",
        "update saml_configurations set enabled = false",
    ],
)
async def test_the_page_of_a_sign_in_that_the_application_no_longer_accepts_says_so(
    mobile_app: RelyingParty, shop: SamlApplication, browser: SamlBrowser, pool: Pool, change: str
) -> None:
    browser.cookies.clear()
    path = await browser.start_sign_on(shop) if "saml" in change else mobile_app.request()
    page = action_of(await browser.open(path))
    await run_sql(pool, change)
    ended = await browser.open(page)
    assert (has_ended(ended), "or the application no longer accepts it." in ended.text) == (True, True)


@pytest.mark.parametrize("change", ["- 'relay_state'", '|| \'{"color": "red"}\'', '|| \'{"status": "new"}\'', "|| '{\"subject\": {}}'"])
async def test_a_sign_on_that_another_release_stored_has_ended(
    shop: SamlApplication, user: Account, browser: SamlBrowser, pool: Pool, change: str
) -> None:
    path = await browser.start_sign_on(shop)
    page = action_of(await browser.open(path))
    await run_sql(pool, f"update sign_in_flows set request = (request::jsonb {change})::text")  # noqa: S608
    assert has_ended(await browser.open(page))
    assert (await browser.open(path)).status == 400
