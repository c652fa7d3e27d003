"""The consent page, and the sign-in before it.

Covers security G-1, G-2 and O-3.
"""

import re
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.federation.oauth.model.authorization import AuthorizationRequest
from core.kernel.connections import CODEHOST
from ports import Ports
from tests.fakes.provider import FakeProvider
from tests.federation.api.relying import AUTHORIZE, PKCE, RelyingParty, add_relying_party, redirect_parts, sign_in_browser
from tests.support.browser import HOME, SIGN_IN, FakeBrowser, action_of, form_token, has_ended, is_step, leads_to
from tests.support.builders import BASE_URL, EMAIL, PASSWORD, add_member, add_provisioned, run_sql
from tests.support.direct import set_up
from tests.support.mfa import Authenticator
from tests.support.tenants import Tenant

DENIED = {
    "error": "access_denied",
    "error_description": "The user declined, or may not use this application.",
    "state": "af0ifjsldkj",
    "iss": BASE_URL,
}

# The consent page


async def test_an_unknown_user_must_consent_before_the_organization_learns_of_them(relying_party: RelyingParty, user: Account) -> None:
    await sign_in_browser(relying_party, user, is_known=False)
    page = await relying_party.open_request()
    assert page.status == 200
    assert "Continue to <bdi>Shop</bdi>?" in page.text
    assert f'You continue at <strong class="target"><bdi>{urlsplit(relying_party.redirect_uri).netloc}</bdi></strong>.' in page.text
    assert "by <bdi>Acme</bdi> wants to sign you in as <strong>ada@example.com</strong>" in page.text
    assert "form-action" not in page.headers["Content-Security-Policy"]
    assert await run_sql(relying_party.tenant.pool, "select count(*) from authorization_codes") == [(0,)]
    place, fields = redirect_parts(await relying_party.browser.answer(page, "continue"))
    assert place == relying_party.redirect_uri
    assert set(fields) == {"code", "state", "iss"}


async def test_a_user_who_cancels_returns_without_a_code(relying_party: RelyingParty, user: Account) -> None:
    await sign_in_browser(relying_party, user, is_known=False)
    place, fields = redirect_parts(await relying_party.browser.answer(await relying_party.open_request(), "refuse"))
    assert place == relying_party.redirect_uri
    assert fields == DENIED
    assert await run_sql(relying_party.tenant.pool, "select count(*) from authorization_codes") == [(0,)]


async def test_a_user_blocked_by_the_directory_is_denied_immediately(relying_party: RelyingParty, user: Account) -> None:
    """This also holds if the directory blocks them while the consent page is open."""
    await sign_in_browser(relying_party, user, is_known=False)
    page = await relying_party.open_request()
    await add_provisioned(relying_party.tenant.pool, relying_party.tenant.org, user.id, provisioned=False, blocked=True)
    assert redirect_parts(await relying_party.open_request()) == (relying_party.redirect_uri, DENIED)
    assert redirect_parts(await relying_party.browser.answer(page, "continue")) == (relying_party.redirect_uri, DENIED)
    assert await run_sql(relying_party.tenant.pool, "select count(*) from authorization_codes") == [(0,)]


async def test_a_form_of_another_site_gives_no_consent(relying_party: RelyingParty, user: Account) -> None:
    await sign_in_browser(relying_party, user, is_known=False)
    page = await relying_party.open_request()
    wrong = await relying_party.browser.send(action_of(page), form_token="f" * 64, answer="continue")
    assert wrong.status == 403
    foreign = await relying_party.browser.send(
        action_of(page), (b"sec-fetch-site", b"cross-site"), form_token=form_token(page), answer="continue"
    )
    assert foreign.status == 403
    assert await run_sql(relying_party.tenant.pool, "select count(*) from authorization_codes") == [(0,)]


@pytest.mark.parametrize("signed_in", [True, False])
async def test_a_request_of_an_application_can_be_a_form(relying_party: RelyingParty, user: Account, signed_in: bool) -> None:
    """The form is checked and continues with GET, also from another site (OpenID Connect Core section 3.1.2.1).

    The form never issues a code: a browser does not send the session cookie with a cross-site form.
    """
    if signed_in:
        await sign_in_browser(relying_party, user)
    address, _, query = relying_party.request().partition("?")
    fields = dict(parse_qsl(query))
    for path, form in ((address, fields), (relying_party.request(), {"answer": "continue"}), (relying_party.request(state="old"), fields)):
        answer = await relying_party.browser.send(path, (b"sec-fetch-site", b"cross-site"), **form)
        assert (answer.status, leads_to(answer)) == (303, relying_party.request())
    assert await run_sql(relying_party.tenant.pool, "select count(*) from authorization_codes") == [(0,)]


async def test_a_form_that_is_not_a_valid_request_is_refused(relying_party: RelyingParty, user: Account) -> None:
    await sign_in_browser(relying_party, user)
    evil = relying_party.request(redirect_uri="https://evil.example/callback")
    address, _, query = evil.partition("?")
    assert (await relying_party.browser.send(evil)).status == 400
    assert (await relying_party.browser.send(address, **dict(parse_qsl(query)))).status == 400
    body = {"client_id": str(relying_party.client_id), "redirect_uri": relying_party.redirect_uri}
    assert (await relying_party.api.post(AUTHORIZE, body)).status == 415, "JSON is no form"


async def test_the_form_is_documented(relying_party: RelyingParty) -> None:
    described = (await relying_party.api.get("/openapi.json")).json["paths"][AUTHORIZE]
    for_get, for_post = (
        {field["name"] for field in described[method].get("parameters", ()) if field["in"] == "query"} for method in ("get", "post")
    )
    assert for_get - for_post == {"provider"}
    assert for_post == set(AuthorizationRequest.__slots__)
    [form] = described["post"]["requestBody"]["content"].values()
    assert set(form["schema"]["properties"]) == for_post, "no form of our own"
    assert "authorization request as a form" in described["post"]["summary"] + described["post"]["description"]


async def test_the_request_is_validated_again_with_the_answer(relying_party: RelyingParty, user: Account) -> None:
    await sign_in_browser(relying_party, user, is_known=False)
    page = await relying_party.open_request()
    evil = relying_party.request(redirect_uri="https://evil.example/callback")
    for answer in ("continue", "refuse"):
        sent = await relying_party.browser.send(evil, form_token=form_token(page), answer=answer)
        assert (await relying_party.browser.open(leads_to(sent))).status == 400
    await relying_party.set_redirect_uris("https://shop.example.com/other")
    for answer in ("continue", "refuse"):
        sent = await relying_party.browser.answer(page, answer)
        assert (has_ended(sent), "Location" in sent.headers) == (True, False)
    assert await run_sql(relying_party.tenant.pool, "select count(*) from authorization_codes") == [(0,)]


async def test_a_native_application_needs_consent_every_time(mobile_app: RelyingParty, user: Account) -> None:
    """Any program on the machine can claim a scheme or a port, but not an https URL (RFC 8252 section 8.6)."""
    relying_party = mobile_app
    await sign_in_browser(relying_party, user)
    assert "code" in redirect_parts(await relying_party.open_request())[1]
    for uri in ("com.example.shop:/back", "http://127.0.0.1:51004/back", "http://[::1]:51004/b"):
        page = await relying_party.open_request(redirect_uri=uri)
        assert page.status == 200


async def test_another_user_can_sign_in_instead(relying_party: RelyingParty, user: Account) -> None:
    await sign_in_browser(relying_party, user, is_known=False)
    token = form_token(await relying_party.open_request())
    target = leads_to(await relying_party.browser.send("/app/sign-out", form_token=token, next=relying_party.request()))
    assert target == f"{SIGN_IN}?{urlencode({'next': relying_party.request()})}"
    assert "gatehouse-session" not in relying_party.browser.cookies


# Browsers without a session


async def test_a_browser_without_a_session_signs_in_first_and_returns(relying_party: RelyingParty, user: Account) -> None:
    page = await relying_party.open_request()
    assert is_step(action_of(page), "sign-in")
    assert "<h1>Sign in to <bdi>Shop</bdi></h1>" in page.text
    assert "signs people in for <bdi>Acme</bdi>" in page.text
    assert "form-action" not in page.headers["Content-Security-Policy"]
    page_again = await relying_party.browser.fill(page, email=EMAIL, password="wrong")
    assert (page_again.status, "<bdi>Shop</bdi>" in page_again.text) == (401, True)
    after = leads_to(await relying_party.browser.fill(page, email=EMAIL, password=PASSWORD))
    assert "Continue to" in (await relying_party.browser.open(after)).text
    begun = await run_sql(relying_party.tenant.pool, "select proofs -> 0 ->> 'method' from sessions where browser_hash is not null")
    assert begun == [("password",)]


async def test_the_longest_request_survives_the_sign_in(relying_party: RelyingParty, user: Account) -> None:
    page = await relying_party.open_request(state="&" * 1024, **PKCE)
    question = await relying_party.browser.open(leads_to(await relying_party.browser.fill(page, email=EMAIL, password=PASSWORD)))
    assert redirect_parts(await relying_party.browser.answer(question, "continue"))[1]["state"] == "&" * 1024


async def test_a_request_with_an_unregistered_address_gets_no_sign_in_page(relying_party: RelyingParty) -> None:
    request = relying_party.request(redirect_uri="https://evil.example/")
    assert leads_to(await relying_party.browser.open(f"{SIGN_IN}?{urlencode({'next': request})}")) == request
    page = await relying_party.browser.open(request)
    assert (page.status, "not registered" in page.text, "<form" in page.text, "Password" in page.text) == (400, True, False, False)


async def test_an_application_can_choose_the_identity_provider(app: QuartTrio, ports: Ports, relying_party: RelyingParty) -> None:
    assert (await relying_party.open_request(provider="codehost")).status == 404, "it is not configured"
    with FakeProvider(CODEHOST) as provider:
        await set_up(app, [provider.connection()])
        target = leads_to(await relying_party.open_request(provider="codehost"))
    assert re.fullmatch("/auth/codehost\\?flow=[0-9a-f-]{36}", target)


async def test_no_sign_in_begins_at_a_provider_without_credentials(
    app: QuartTrio, ports: Ports, relying_party: RelyingParty, pool: Pool
) -> None:
    with FakeProvider(CODEHOST) as provider:
        await set_up(app, [provider.connection(client=None)])
        assert (await relying_party.open_request(provider="codehost")).status == 404
        path = relying_party.request().replace("/auth/authorize", "/auth/codehost")
        assert (await relying_party.browser.open(path)).status == 404
    assert await run_sql(pool, "select 1 from sign_in_flows") == []


# Confirmed memberships (docs/specification/security.md, Terms)


async def is_confirmed(relying_party: RelyingParty, account: Account) -> bool:
    [(confirmed,)] = await run_sql(
        relying_party.tenant.pool, "select confirmed_at is not null from memberships where user_id = %s", account.id
    )
    return bool(confirmed)


async def test_a_sign_in_with_a_password_to_a_service_confirms_the_membership(
    relying_party: RelyingParty, browser: FakeBrowser, user: Account
) -> None:
    await add_member(relying_party.tenant.pool, relying_party.tenant.org, user.id)
    assert leads_to(await browser.sign_in()) == HOME
    assert "<h1>Continue to" in (await relying_party.open_request()).text, "an unconfirmed membership does not replace the consent"
    assert not await is_confirmed(relying_party, user), "following a link with only a cookie confirms nothing"
    browser.cookies.clear()
    await browser.sign_in(after=relying_party.request())
    assert await is_confirmed(relying_party, user)


async def test_a_sign_in_that_the_service_refuses_confirms_nothing(
    relying_party: RelyingParty, browser: FakeBrowser, user: Account, pool: Pool
) -> None:
    await add_member(pool, relying_party.tenant.org, user.id)
    await run_sql(pool, "update services set access_policy = 'assigned'")
    await browser.sign_in(after=relying_party.request())
    assert not await is_confirmed(relying_party, user)


async def test_a_sign_in_with_a_second_factor_confirms_only_the_membership_of_that_organization(
    relying_party: RelyingParty, browser: FakeBrowser, user: Account, factor: Authenticator, other_tenant: Tenant
) -> None:
    await add_member(relying_party.tenant.pool, relying_party.tenant.org, user.id)
    other_party = await add_relying_party(other_tenant, browser, "elsewhere")
    for party, expected in ((other_party, False), (relying_party, True)):
        browser.cookies.clear()
        await browser.sign_in(after=party.request())
        assert not await is_confirmed(relying_party, user)
        await browser.show_code(factor.code(int(expected)), next=party.request())
        assert await is_confirmed(relying_party, user) is expected
