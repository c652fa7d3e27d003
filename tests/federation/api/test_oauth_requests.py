"""Authorization requests, the consent page, and the redirects to the application.

Covers security O-2, O-3, G-1 and G-2, decisions 86, 87, 88, 89 and 90, RFC 6749 section 4.1, RFC
8252 section 7.3 and RFC 9207.

The module is longer than 400 lines, because all tests share one application and the browser of its
user.
"""

from datetime import timedelta
from typing import Final
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts.accounts_rules import Account
from core.federation.oauth.authorization_rules import AuthorizationRequest
from core.kernel.policy import Policy
from core.kernel.principals import Role
from core.kernel.values import digest
from entrypoints.http.app import Edge
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.federation.api.relying import AUTHORIZE, PKCE, RelyingParty, add_relying_party, redirect_parts, sign_in_browser
from tests.support.browser import ACCOUNT, SIGN_IN, FakeBrowser, form_token, leads_to
from tests.support.builders import BASE_URL, EMAIL, PASSWORD, add_account, add_member, add_provisioned, run_during, run_sql
from tests.support.direct import change_ports
from tests.support.mfa import Authenticator
from tests.support.tenants import Tenant

FRONTEND = "https://app.example.com"


@pytest.fixture
def browser(app: QuartTrio, edge: Edge) -> FakeBrowser:
    return FakeBrowser(app, edge.base_url)


@pytest.fixture
async def relying_party(acme: Tenant, browser: FakeBrowser) -> RelyingParty:
    return await add_relying_party(acme, browser)


@pytest.fixture
async def mobile_app(acme: Tenant, browser: FakeBrowser) -> RelyingParty:
    application = await add_relying_party(acme, browser, service_type="mobile")
    await application.set_redirect_uris(
        "https://shop.example.com/callback", "com.example.shop:/back", "http://127.0.0.1/back", "http://[::1]/b"
    )
    return application


# Invalid requests


INVALID: Final[tuple[tuple[dict[str, str | None], int, str], ...]] = (
    ({"service": None}, 400, "send both org and service"),
    ({"org": None}, 400, "send both org and service"),
    ({"org": "nobody"}, 404, "organization does not exist"),
    ({"org": "acme\0"}, 404, "organization does not exist"),
    ({"service": "\0"}, 404, "organization does not exist"),
    ({"service": "nothing"}, 404, "service does not exist"),
    ({"client_id": "00000000-0000-4000-8000-000000000000"}, 400, "belongs to a different service"),
    ({"org": None, "service": None, "client_id": "00000000-0000-4000-8000-000000000000"}, 404, "service does not exist"),
    ({"org": None, "service": None, "client_id": "somebody"}, 404, "service does not exist"),
    ({"redirect_uri": "https://shop.example.com/callback/"}, 400, "The browser was not redirected"),
    ({"redirect_uri": "https://shop.example.com/Callback"}, 400, "The browser was not redirected"),
    ({"redirect_uri": "https://shop.example.com/callback?more=1"}, 400, "The browser was not redirected"),
    ({"redirect_uri": "https://shop.example.com:443/callback"}, 400, "The browser was not redirected"),
    ({"redirect_uri": "https://evil.example/callback"}, 400, "The browser was not redirected"),
    ({"state": "s" * 1025}, 400, "1024 characters"),
    ({"state": "a\0b"}, 400, "control characters"),
    ({"state": "a\u202eb"}, 400, "control characters"),
    ({"code_challenge": "short", "code_challenge_method": "S256"}, 400, "43 characters"),
    ({"code_challenge": PKCE["code_challenge"]}, 400, "43 characters"),
    ({"code_challenge": PKCE["code_challenge"], "code_challenge_method": "plain"}, 400, "43 characters"),
    ({"code_challenge_method": "S256"}, 400, "43 characters"),
    ({"provider": "nothing"}, 404, "identity provider is unknown"),
)


async def test_an_invalid_request_is_shown_to_the_user_and_never_redirected(relying_party: RelyingParty, user: Account) -> None:
    await sign_in_browser(relying_party, user)
    findings = []
    for changes, status, sentence in INVALID:
        answer = await relying_party.open_request(**changes)
        is_page = answer.headers["Content-Type"] == "text/html; charset=utf-8" and "Location" not in answer.headers
        if answer.status != status or not is_page or sentence not in answer.text:
            findings.append((changes, answer.status, answer.text))
    assert findings == []
    assert await run_sql(relying_party.tenant.pool, "select count(*) from authorization_codes") == [(0,)]


async def test_repeated_parameters_are_refused(relying_party: RelyingParty, user: Account) -> None:
    await sign_in_browser(relying_party, user)
    assert (await relying_party.browser.open(f"{relying_party.request()}&state=another")).status == 400


@pytest.mark.parametrize("status", ["pending", "suspended", "rejected"])
async def test_an_inactive_organization_signs_no_users_in(relying_party: RelyingParty, user: Account, status: str) -> None:
    await sign_in_browser(relying_party, user)
    await run_sql(relying_party.tenant.pool, "update organizations set status = %s where id = %s", status, relying_party.tenant.org)
    named: dict[str, str | None] = {"org": None, "service": None, "client_id": str(relying_party.client_id)}
    for fields in ({}, named):
        answer = await relying_party.open_request(**fields)
        assert (answer.status, "is not active" in answer.text) == (403, True)


async def test_a_public_client_must_send_a_challenge(mobile_app: RelyingParty, user: Account) -> None:
    await sign_in_browser(mobile_app, user)
    answer = await mobile_app.open_request(code_challenge=None, code_challenge_method=None)
    assert (answer.status, "PKCE" in answer.text) == (400, True)


# Redirect URIs


async def test_with_several_redirect_uris_the_request_must_name_one(relying_party: RelyingParty, user: Account) -> None:
    await sign_in_browser(relying_party, user)
    assert redirect_parts(await relying_party.open_request(redirect_uri=None))[0] == relying_party.redirect_uri
    await relying_party.set_redirect_uris(relying_party.redirect_uri, "https://shop.example.com/other")
    assert (await relying_party.open_request(redirect_uri=None)).status == 400
    await relying_party.set_redirect_uris()
    assert (await relying_party.open_request(redirect_uri=None)).status == 400


async def test_a_native_application_can_use_any_loopback_port_and_nothing_else(mobile_app: RelyingParty, user: Account) -> None:
    await sign_in_browser(mobile_app, user)
    findings = []
    for uri, is_accepted in (
        ("com.example.shop:/back", True),
        ("http://127.0.0.1:51004/back", True),
        ("http://127.0.0.1/back", True),
        ("http://[::1]:51004/b", True),
        ("http://127.0.0.1:51004/other", False),
        ("http://localhost:51004/back", False),
        ("https://127.0.0.1:51004/back", False),
        ("http://127.0.0.1:51004@evil.example/back", False),
        ("http://127.0.0.1.evil.example:51004/back", False),
        ("https://shop.example.com:51004/callback", False),
        ("com.example.other:/back", False),
    ):
        answer = await mobile_app.open_request(redirect_uri=uri)
        if answer.status != (200 if is_accepted else 400):
            findings.append((uri, answer.status))
    assert findings == []


async def test_a_web_application_must_use_its_registered_port(relying_party: RelyingParty, user: Account) -> None:
    await sign_in_browser(relying_party, user)
    await relying_party.set_redirect_uris("http://localhost:3000/callback")
    assert (await relying_party.open_request(redirect_uri="http://localhost:3000/callback")).status == 200
    assert (await relying_party.open_request(redirect_uri="http://localhost:3001/callback")).status == 400


async def test_a_redirect_uri_keeps_its_own_query(relying_party: RelyingParty, user: Account) -> None:
    await sign_in_browser(relying_party, user)
    await relying_party.set_redirect_uris("https://shop.example.com/callback?tenant=7&x=%20")
    target = leads_to(await relying_party.open_request(redirect_uri="https://shop.example.com/callback?tenant=7&x=%20"))
    assert target.startswith("https://shop.example.com/callback?tenant=7&x=%20&code=")


# Signed-in users


async def test_a_user_of_the_application_gets_a_code_immediately(relying_party: RelyingParty, user: Account, clock: FakeClock) -> None:
    session_id = await sign_in_browser(relying_party, user)
    answer = await relying_party.open_request(**PKCE)
    place, fields = redirect_parts(answer)
    assert place == "https://shop.example.com/callback"
    assert fields == {"code": fields["code"], "state": "af0ifjsldkj", "iss": BASE_URL}
    assert len(fields["code"]) == 43
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    columns = "code_hash, org_id, service_id, user_id, browser_session_id, redirect_uri, code_challenge, created_at, expires_at, session_id"
    now = clock.now()
    assert await run_sql(relying_party.tenant.pool, f"select {columns} from authorization_codes") == [  # noqa: S608
        (
            digest(fields["code"]),
            relying_party.tenant.org,
            relying_party.service,
            user.id,
            session_id,
            "https://shop.example.com/callback",
            PKCE["code_challenge"],
            now,
            now + timedelta(seconds=60),
            None,
        )
    ]


async def test_a_service_that_is_being_deleted_gets_no_code(relying_party: RelyingParty, user: Account, pool: Pool) -> None:
    await sign_in_browser(relying_party, user)
    assert (await run_during(pool, [("delete from services", ())], relying_party.open_request)).status == 404


async def test_a_request_without_state_gets_none_back(relying_party: RelyingParty, user: Account) -> None:
    await sign_in_browser(relying_party, user)
    assert set(redirect_parts(await relying_party.open_request(state=None))[1]) == {"code", "iss"}


async def test_a_client_id_replaces_the_slugs(relying_party: RelyingParty, user: Account) -> None:
    await sign_in_browser(relying_party, user)
    fields = {"org": None, "service": None, "client_id": str(relying_party.client_id), "response_type": "code", "scope": "read"}
    assert "code" in redirect_parts(await relying_party.open_request(**fields))[1]
    assert "code" in redirect_parts(await relying_party.open_request(client_id=str(relying_party.client_id)))[1]


async def test_only_the_response_type_code_is_supported(relying_party: RelyingParty, user: Account) -> None:
    await sign_in_browser(relying_party, user)
    place, fields = redirect_parts(await relying_party.open_request(response_type="token"))
    assert place == relying_party.redirect_uri
    assert fields == {"error": "unsupported_response_type", "state": "af0ifjsldkj", "iss": BASE_URL}


@pytest.mark.parametrize("known", ["as a member", "as an end user of another service"])
async def test_a_user_known_to_the_organization_needs_no_consent(
    relying_party: RelyingParty, user: Account, pool: Pool, known: str
) -> None:
    await sign_in_browser(relying_party, user, known=False)
    if known == "as a member":
        await add_member(pool, relying_party.tenant.org, user.id, Role.MEMBER)
    else:
        other = await add_relying_party(relying_party.tenant, relying_party.browser, "blog")
        await sign_in_browser(other, user)
    assert "code" in redirect_parts(await relying_party.open_request())[1]


async def test_a_user_with_an_unverified_address_gets_a_code(relying_party: RelyingParty, ports: Ports) -> None:
    await sign_in_browser(relying_party, await add_account(ports, "bob@example.com", verified=False))
    assert "code" in redirect_parts(await relying_party.open_request())[1]


async def test_a_head_request_issues_no_code(relying_party: RelyingParty, user: Account) -> None:
    await sign_in_browser(relying_party, user)
    assert (await relying_party.browser.open(relying_party.request(), method="HEAD")).status == 200
    assert await run_sql(relying_party.tenant.pool, "select count(*) from authorization_codes") == [(0,)]


# The consent page


async def test_an_unknown_user_must_consent_before_the_organization_learns_of_them(relying_party: RelyingParty, user: Account) -> None:
    await sign_in_browser(relying_party, user, known=False)
    page = await relying_party.open_request()
    assert page.status == 200
    assert "Continue to <bdi>Shop</bdi>?" in page.text
    assert "by <bdi>Acme</bdi> wants to sign you in as <strong>ada@example.com</strong>" in page.text
    assert "form-action 'self' https://shop.example.com;" in page.headers["Content-Security-Policy"]
    assert await run_sql(relying_party.tenant.pool, "select count(*) from authorization_codes") == [(0,)]
    token = form_token(page)
    place, fields = redirect_parts(await relying_party.browser.send(relying_party.request(), form_token=token, answer="continue"))
    assert place == relying_party.redirect_uri
    assert set(fields) == {"code", "state", "iss"}


async def test_a_user_who_cancels_returns_without_a_code(relying_party: RelyingParty, user: Account) -> None:
    await sign_in_browser(relying_party, user, known=False)
    token = form_token(await relying_party.open_request())
    place, fields = redirect_parts(await relying_party.browser.send(relying_party.request(), form_token=token, answer="refuse"))
    assert place == relying_party.redirect_uri
    assert fields == {"error": "access_denied", "state": "af0ifjsldkj", "iss": BASE_URL}
    assert await run_sql(relying_party.tenant.pool, "select count(*) from authorization_codes") == [(0,)]


async def test_a_user_blocked_by_the_directory_is_denied_immediately(relying_party: RelyingParty, user: Account) -> None:
    """This also holds if the directory blocks them while the consent page is open."""
    await sign_in_browser(relying_party, user, known=False)
    token = form_token(await relying_party.open_request())
    await add_provisioned(relying_party.tenant.pool, relying_party.tenant.org, user.id, provisioned=False, kept_out=True)
    denied = {"error": "access_denied", "state": "af0ifjsldkj", "iss": BASE_URL}
    assert redirect_parts(await relying_party.open_request()) == (relying_party.redirect_uri, denied)
    assert redirect_parts(await relying_party.browser.send(relying_party.request(), form_token=token, answer="continue")) == (
        relying_party.redirect_uri,
        denied,
    )
    assert await run_sql(relying_party.tenant.pool, "select count(*) from authorization_codes") == [(0,)]


async def test_a_form_of_another_site_gives_no_consent(relying_party: RelyingParty, user: Account) -> None:
    await sign_in_browser(relying_party, user, known=False)
    token = form_token(await relying_party.open_request())
    wrong = await relying_party.browser.send(relying_party.request(), form_token="f" * 64, answer="continue")
    assert wrong.status == 403
    foreign = await relying_party.browser.send(
        relying_party.request(), (b"sec-fetch-site", b"cross-site"), form_token=token, answer="continue"
    )
    assert foreign.status == 403
    assert await run_sql(relying_party.tenant.pool, "select count(*) from authorization_codes") == [(0,)]


@pytest.mark.parametrize("signed_in", [True, False])
async def test_an_application_cannot_send_its_request_with_post(relying_party: RelyingParty, user: Account, signed_in: bool) -> None:
    """RFC 6749 section 3.1 makes it optional.

    If it were accepted, we would ignore the form fields and sign the user in to another application.
    """
    if signed_in:
        await sign_in_browser(relying_party, user)
    address, _, query = relying_party.request().partition("?")
    for path, fields in (
        (address, dict(parse_qsl(query))),
        (relying_party.request(), {"answer": "continue"}),
        (relying_party.request(), {}),
    ):
        refused = await relying_party.browser.send(path, **fields)
        assert (refused.status, "with GET" in refused.text) == (403, True)
    assert await run_sql(relying_party.tenant.pool, "select count(*) from authorization_codes") == [(0,)]


async def test_only_the_form_of_the_page_is_documented(relying_party: RelyingParty) -> None:
    described = (await relying_party.api.get("/openapi.json")).json["paths"][AUTHORIZE]
    for_get, for_post = (
        {field["name"] for field in described[method].get("parameters", ()) if field["in"] == "query"} for method in ("get", "post")
    )
    assert for_get - for_post == {"response_type", "provider"}
    assert for_post == set(AuthorizationRequest.__slots__)
    [form] = described["post"]["requestBody"]["content"].values()
    assert form["schema"]["required"] == ["form_token", "answer"]
    assert "only the form of our page is accepted" in described["post"]["description"]


async def test_the_request_is_validated_again_with_the_answer(relying_party: RelyingParty, user: Account) -> None:
    await sign_in_browser(relying_party, user, known=False)
    token = form_token(await relying_party.open_request())
    evil = relying_party.request(redirect_uri="https://evil.example/callback")
    assert (await relying_party.browser.send(evil, form_token=token, answer="continue")).status == 400
    assert (await relying_party.browser.send(evil, form_token=token, answer="refuse")).status == 400


async def test_a_native_application_needs_consent_every_time(mobile_app: RelyingParty, user: Account) -> None:
    """Any program on the machine can claim a scheme or a port (RFC 8252 section 8.6), but not an
    https URL.
    """
    relying_party = mobile_app
    await sign_in_browser(relying_party, user)
    assert "code" in redirect_parts(await relying_party.open_request())[1]
    for uri, origin in [
        ("com.example.shop:/back", "com.example.shop:"),
        ("http://127.0.0.1:51004/back", "http://127.0.0.1:51004"),
        ("http://[::1]:51004/b", "http:"),
    ]:
        page = await relying_party.open_request(redirect_uri=uri)
        assert page.status == 200
        assert f"form-action 'self' {origin};" in page.headers["Content-Security-Policy"]


async def test_another_user_can_sign_in_instead(relying_party: RelyingParty, user: Account) -> None:
    await sign_in_browser(relying_party, user, known=False)
    token = form_token(await relying_party.open_request())
    target = leads_to(await relying_party.browser.send("/app/sign-out", form_token=token, next=relying_party.request()))
    assert target == f"{SIGN_IN}?{urlencode({'next': relying_party.request()})}"
    assert "gatehouse-session" not in relying_party.browser.cookies


# Browsers without a session


async def test_a_browser_without_a_session_signs_in_first_and_returns(relying_party: RelyingParty, user: Account) -> None:
    target = leads_to(await relying_party.open_request())
    assert urlsplit(target).path == SIGN_IN
    [after] = parse_qs(urlsplit(target).query)["next"]
    assert after == relying_party.request()
    page = await relying_party.browser.open(target)
    assert "<h1>Sign in to <bdi>Shop</bdi></h1>" in page.text
    assert "signs people in for <bdi>Acme</bdi>" in page.text
    assert "form-action 'self' https://shop.example.com;" in page.headers["Content-Security-Policy"]
    refused = await relying_party.browser.send(SIGN_IN, form_token=form_token(page), email=EMAIL, password="wrong", next=after)
    assert (refused.status, "<bdi>Shop</bdi>" in refused.text) == (401, True)
    assert (
        leads_to(await relying_party.browser.send(SIGN_IN, form_token=form_token(page), email=EMAIL, password=PASSWORD, next=after))
        == after
    )
    assert "Continue to" in (await relying_party.browser.open(after)).text
    assert await run_sql(relying_party.tenant.pool, "select provider from sessions where browser_hash is not null") == [("password",)]


async def test_the_longest_request_survives_the_sign_in(relying_party: RelyingParty, user: Account) -> None:
    target = leads_to(await relying_party.open_request(state="&" * 1024, **PKCE))
    [after] = parse_qs(urlsplit(target).query)["next"]
    assert leads_to(await relying_party.browser.sign_in(after=after)) == after


async def test_the_sign_in_page_shows_nothing_of_an_invalid_request(relying_party: RelyingParty) -> None:
    page = await relying_party.browser.open(f"{SIGN_IN}?{urlencode({'next': relying_party.request(redirect_uri='https://evil.example/')})}")
    assert "<h1>Sign in</h1>" in page.text
    assert "form-action 'self';" in page.headers["Content-Security-Policy"]


async def test_an_application_can_choose_the_identity_provider(relying_party: RelyingParty) -> None:
    target = leads_to(await relying_party.open_request(provider="codehost"))
    assert target == f"/auth/codehost?{urlsplit(relying_party.request()).query}"


# The platform itself


async def test_without_a_frontend_users_sign_in_on_the_hosted_pages(browser: FakeBrowser, user: Account) -> None:
    assert leads_to(await browser.open(AUTHORIZE)) == f"{SIGN_IN}?next=%2Fauth%2Fauthorize"
    await browser.sign_in()
    assert leads_to(await browser.open(AUTHORIZE)) == ACCOUNT
    assert (await browser.open(f"{AUTHORIZE}?redirect_uri=https%3A%2F%2Fevil.example%2F")).status == 400


async def test_the_frontend_gets_codes_at_its_callback(app: QuartTrio, browser: FakeBrowser, user: Account) -> None:
    change_ports(app, policy=Policy(frontend_url=FRONTEND))
    await browser.sign_in()
    for named in ({}, {"client_id": "frontend"}, {"redirect_uri": f"{FRONTEND}/auth/callback"}):
        place, fields = redirect_parts(await browser.open(f"{AUTHORIZE}?{urlencode({**PKCE, **named, 'state': 'x'})}"))
        assert place == f"{FRONTEND}/auth/callback"
        assert set(fields) == {"code", "state", "iss"}
    assert (await browser.open(AUTHORIZE)).status == 400, "it is a public client and must send a challenge"
    assert (await browser.open(f"{AUTHORIZE}?{urlencode({**PKCE, 'redirect_uri': f'{FRONTEND}/elsewhere'})}")).status == 400


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
    assert leads_to(await browser.sign_in()) == ACCOUNT
    assert (await relying_party.code()) is not None
    assert not await is_confirmed(relying_party, user), "following a link with only a cookie confirms nothing"
    browser.cookies.clear()
    await browser.sign_in(after=relying_party.request())
    assert await is_confirmed(relying_party, user)


async def test_a_sign_in_with_a_second_factor_confirms_only_the_membership_of_that_organization(
    relying_party: RelyingParty, browser: FakeBrowser, user: Account, factor: Authenticator, other_tenant: Tenant
) -> None:
    await add_member(relying_party.tenant.pool, relying_party.tenant.org, user.id)
    elsewhere = await add_relying_party(other_tenant, browser, "elsewhere")
    for wanted, expected in ((elsewhere, False), (relying_party, True)):
        browser.cookies.clear()
        await browser.sign_in(after=wanted.request())
        assert not await is_confirmed(relying_party, user)
        await browser.show_code(factor.code(int(expected)), next=wanted.request())
        assert await is_confirmed(relying_party, user) is expected
