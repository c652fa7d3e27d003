"""Sessions that started before the second factor was enabled.

Such sessions can use the account, but not sign in elsewhere (security A-10, V-3, X-8).
"""

import re
from typing import Any
from urllib.parse import quote

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.federation.api.cli import VERIFY, DeviceClient
from tests.federation.api.relying import RelyingParty, add_relying_party, redirect_parts
from tests.support.browser import HOME, SIGN_IN, action_of, form_token, is_step, leads_to
from tests.support.builders import EMAIL, PASSWORD, Api, add_member, run_sql, sign_in
from tests.support.mfa import Authenticator
from tests.support.refusals import UNAUTHORIZED, refused
from tests.support.saml import SamlApplication, posted_response
from tests.support.saml.browser import SamlBrowser
from tests.support.services import add_service_user, service_context
from tests.support.tenants import Tenant

TWO_FACTOR = "/app/account/two-factor"
IS_PASSIVE: dict[str, Any] = {"IsPassive": "true"}


class OldSession:
    """A user with a browser session and a token from before the second factor was enabled."""

    def __init__(self, api: Api, browser: SamlBrowser, token: str, clock: FakeClock) -> None:
        self.api, self.browser, self.token, self.clock = api, browser, token, clock

    async def enable_mfa(self, token: str) -> Authenticator:
        setup = await self.api.post("/api/user/mfa/setup", token=token)
        app = Authenticator(setup.json["secret"], self.clock)
        answer = await self.api.post("/api/user/mfa/verify", {"code": app.code(-1)}, token=token)
        assert answer.status == 200, answer.text
        return app

    async def enable_mfa_in_browser(self) -> Authenticator:
        """Enable the second factor in the browser."""
        page = await self.browser.submit(f"{TWO_FACTOR}/setup", "/app/account/security")
        match = re.search(r"secret=([A-Z2-7]+)", page.text)
        assert match, page.text
        app = Authenticator(match[1], self.clock)
        answer = await self.browser.send(f"{TWO_FACTOR}/confirm", form_token=form_token(page), code=app.code(-1))
        assert answer.status == 200, answer.text
        return app

    async def sign_in_at(self, path: str, app: Authenticator) -> None:
        """Follow this path's redirect to the sign-in page, and sign in again."""
        assert is_step(leads_to(await self.browser.sign_in(after=path)), "code")
        assert await self.browser.ends_at(await self.browser.show_code(app.code())) == path


@pytest.fixture
async def old_session(api: Api, ports: Ports, user: Account, acme: Tenant, browser: SamlBrowser, clock: FakeClock) -> OldSession:
    await add_member(acme.pool, acme.org, user.id)
    assert leads_to(await browser.sign_in()) == HOME
    return OldSession(api, browser, (await sign_in(ports, user)).access_token, clock)


@pytest.fixture
async def new_token(ports: Ports, user: Account) -> str:
    """Return the token for another session, which enables the second factor."""
    return (await sign_in(ports, user)).access_token


@pytest.fixture
async def application(acme: Tenant, browser: SamlBrowser, user: Account, ports: Ports) -> RelyingParty:
    application = await add_relying_party(acme, browser, "store")
    await add_service_user(ports, application.service, user.id)
    return application


async def test_the_account_stays_usable(old_session: OldSession, new_token: str) -> None:
    await old_session.enable_mfa(new_token)
    assert await old_session.browser.is_in()
    assert (await old_session.api.get("/api/user", token=old_session.token)).status == 200


async def test_no_saml_assertion_without_the_second_factor(old_session: OldSession, new_token: str, shop: SamlApplication) -> None:
    await old_session.browser.sign_on(shop)
    app = await old_session.enable_mfa(new_token)
    assert (await old_session.browser.sign_on(shop, **IS_PASSIVE)).statuses == ["Responder", "NoPassive"]
    path = await old_session.browser.start_sign_on(shop)
    assert is_step(await old_session.browser.sign_in_at(path), "code")
    answer = await old_session.browser.open(leads_to(await old_session.browser.show_code(app.code())))
    assert posted_response(answer).statuses == ["Success"]
    assert (await old_session.browser.sign_on(shop, **IS_PASSIVE)).statuses == ["Success"]


async def test_no_idp_initiated_assertion_without_the_second_factor(old_session: OldSession, new_token: str, shop: SamlApplication) -> None:
    await old_session.enable_mfa(new_token)
    answer = await old_session.api.get(f"{shop.management}/login", token=old_session.token)
    assert refused(answer) == UNAUTHORIZED
    assert "Sign in again" in answer.text
    assert (await old_session.api.get(f"{shop.management}/login", token=new_token)).status == 200


async def test_no_authorization_code_without_the_second_factor(old_session: OldSession, new_token: str, application: RelyingParty) -> None:
    await application.code()
    app = await old_session.enable_mfa(new_token)
    path = application.request()
    page = await old_session.browser.open(path)
    assert (page.status, is_step(action_of(page), "sign-in")) == (200, True), "the sign-in form, and no redirect"
    code_page = await old_session.browser.open(leads_to(await old_session.browser.fill(page, email=EMAIL, password=PASSWORD)))
    answer = await old_session.browser.fill(code_page, code=app.code())
    place, fields = redirect_parts(await old_session.browser.open(leads_to(answer)))
    assert (place, set(fields)) == (application.redirect_uri, {"code", "state", "iss"})


async def test_no_authorization_code_if_the_factor_is_enabled_before_the_consent(
    old_session: OldSession, new_token: str, acme: Tenant
) -> None:
    application = await add_relying_party(acme, old_session.browser, "new")
    await run_sql(acme.pool, "delete from memberships where user_id = (select id from users where email = %s)", EMAIL)
    question = await application.open_request()
    assert 'name="answer"' in question.text
    await old_session.enable_mfa(new_token)
    answer = await old_session.browser.fill(question, answer="continue")
    page = await old_session.browser.open(leads_to(answer))
    assert is_step(action_of(page), "sign-in")


async def test_no_device_approval_without_the_second_factor(
    old_session: OldSession, new_token: str, application: RelyingParty, pool: Pool
) -> None:
    cli = DeviceClient(old_session.api, pool, old_session.clock, await service_context(pool, application.service))
    user_code = await cli.begin()
    form = form_token(await old_session.browser.open(VERIFY))
    app = await old_session.enable_mfa(new_token)
    answer = await old_session.api.post(VERIFY, {"user_code": user_code, "action": "approve"}, token=old_session.token)
    assert refused(answer) == UNAUTHORIZED
    path = f"{VERIFY}?user_code={user_code}"
    assert leads_to(await old_session.browser.send(VERIFY, form_token=form, user_code=user_code, action="approve")) == (
        f"{SIGN_IN}?next={quote(path, safe='')}"
    )
    assert leads_to(await old_session.browser.open(path)) == f"{SIGN_IN}?next={quote(path, safe='')}"
    assert await cli.status() == ["pending"]
    await old_session.sign_in_at(path, app)
    page = await old_session.browser.submit(VERIFY, VERIFY, user_code=user_code, action="approve")
    assert page.status == 200
    assert await cli.status() == ["approved"]


async def test_a_device_can_be_denied_without_the_second_factor(
    old_session: OldSession, new_token: str, application: RelyingParty, pool: Pool
) -> None:
    cli = DeviceClient(old_session.api, pool, old_session.clock, await service_context(pool, application.service))
    user_code = await cli.begin()
    await old_session.enable_mfa(new_token)
    answer = await old_session.api.post(VERIFY, {"user_code": user_code, "action": "deny"}, token=old_session.token)
    assert (answer.status, answer.json) == (200, {"status": "denied"})


async def test_the_session_that_enabled_the_factor_keeps_its_rights(old_session: OldSession, shop: SamlApplication, app: QuartTrio) -> None:
    authenticator = await old_session.enable_mfa_in_browser()
    assert (await old_session.browser.sign_on(shop, **IS_PASSIVE)).statuses == ["Success"]
    newcomer = SamlBrowser(app, old_session.clock)
    assert is_step(leads_to(await newcomer.sign_in()), "code")
    assert await newcomer.ends_at(await newcomer.show_code(authenticator.code())) == HOME
    assert (await newcomer.sign_on(shop, **IS_PASSIVE)).statuses == ["Success"]


async def test_disabling_the_second_factor_restores_the_rights_of_old_sessions(
    old_session: OldSession, new_token: str, shop: SamlApplication
) -> None:
    await old_session.enable_mfa(new_token)
    assert (await old_session.api.delete("/api/user/mfa", token=new_token)).status == 200
    assert (await old_session.browser.sign_on(shop, **IS_PASSIVE)).statuses == ["Success"]
    await old_session.enable_mfa_in_browser()
    assert (await old_session.browser.sign_on(shop, **IS_PASSIVE)).statuses == ["Success"], "this session enabled it"
    assert refused(await old_session.api.get(f"{shop.management}/login", token=new_token)) == UNAUTHORIZED
