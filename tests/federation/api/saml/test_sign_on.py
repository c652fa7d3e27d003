"""SAML single sign-on.

Covers security A-9, A-10, X-3, X-5, X-6, X-7, X-8 and X-10, and decisions 174, 175, 177, 179.
"""

from datetime import timedelta
from urllib.parse import urlencode, urlsplit

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.kernel.causes import SYSTEM
from core.kernel.values import new_secret
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.support.browser import ACCOUNT, FLOW, SIGN_IN, FakeBrowser, action_of, form_token, hidden_fields, is_step, leads_to, set_cookies
from tests.support.builders import EMAIL, Answer, Api, add_account, add_member, run_sql, sign_in
from tests.support.mfa import Authenticator
from tests.support.saml import SamlApplication, add_application, authn_request, new_certificate, posted_response, redirect_url
from tests.support.saml.browser import SamlBrowser, request_logout, sign_in_over_api
from tests.support.services import add_service_user
from tests.support.tenants import Tenant

# Sign-in during a sign-on


async def test_a_user_signs_in_and_continues_to_the_application(browser: SamlBrowser, shop: SamlApplication) -> None:
    after = await browser.start_sign_on(shop, "a & b", ID="_asked")
    assert urlsplit(after).path == f"{shop.path}/authenticate"
    answer = await browser.open(await browser.sign_in_at(after))
    response = posted_response(answer)
    assert (response.url, response.relay_state, response.name_id) == (shop.acs_url, "a & b", EMAIL)
    assert response.root.get("InResponseTo") == "_asked"
    assert await browser.is_in(), "the browser stays signed in"
    assert [name for name in browser.cookies if "saml" in name] == [], "the cookie of the sign-on is deleted"


@pytest.mark.parametrize("by_post", [False, True])
async def test_a_long_relay_state_comes_back_unchanged(browser: SamlBrowser, shop: SamlApplication, user: Account, by_post: bool) -> None:
    """Products put a whole return address into it."""
    relay_state = "https://shop.example.com/\u00e9?a=%2F&b=+ ".ljust(4095, "&")
    assert len(relay_state.encode()) == 4096
    after = await (browser.start_sign_on_by_post if by_post else browser.start_sign_on)(shop, relay_state)
    assert posted_response(await browser.open(await browser.sign_in_at(after))).relay_state == relay_state


async def test_the_page_works_without_scripts_and_posts_only_to_the_application(
    browser: SamlBrowser, shop: SamlApplication, user: Account
) -> None:
    await browser.sign_in()
    answer = await browser.open(await browser.start_sign_on(shop, '"><script>alert(1)</script>'))
    policy = dict(part.strip().partition(" ")[::2] for part in answer.headers["Content-Security-Policy"].split(";"))
    assert "form-action" not in policy
    assert policy["default-src"] == "'none'"
    nonce = policy["script-src"].removeprefix("'nonce-").removesuffix("'")
    assert f'<script nonce="{nonce}">' in answer.text
    assert '<button class="button" type="submit">' in answer.text
    assert "<script>alert" not in answer.text
    assert posted_response(answer).relay_state == '"><script>alert(1)</script>'
    assert answer.headers["Cache-Control"] == "no-store"


async def test_a_cross_site_form_without_cookies_starts_a_sign_on(browser: SamlBrowser, shop: SamlApplication, user: Account) -> None:
    await browser.sign_in()
    response = posted_response(await browser.open(await browser.start_sign_on_by_post(shop, "there", ID="_asked")))
    assert (response.relay_state, response.name_id, response.root.get("InResponseTo")) == ("there", EMAIL, "_asked")


async def test_one_session_serves_several_applications(
    browser: SamlBrowser, shop: SamlApplication, ports: Ports, pool: Pool, acme: Tenant, user: Account
) -> None:
    blog = await add_application(ports, pool, acme.org, acme.slug, "blog")
    await add_service_user(ports, blog.id, user.id, signed_in=False)
    await browser.sign_in()
    first, second = await browser.sign_on(shop), await browser.sign_on(blog)
    assert (first.url, second.url) == (shop.acs_url, blog.acs_url)
    assert first.session_index != second.session_index
    assert (await browser.sign_on(shop)).session_index == first.session_index, "the session is the same"


async def test_two_sign_ons_in_one_browser_are_independent(browser: SamlBrowser, shop: SamlApplication, user: Account) -> None:
    one, other = await browser.start_sign_on(shop, "one"), await browser.start_sign_on(shop, "other")
    await browser.sign_in_at(other)
    assert posted_response(await browser.open(other)).relay_state == "other"
    assert posted_response(await browser.open(one)).relay_state == "one"


async def test_cookies_of_old_unfinished_sign_ons_are_deleted(browser: SamlBrowser, shop: SamlApplication, user: Account) -> None:
    await browser.sign_in()
    browser.cookies["gatehouse-saml-logout"] = new_secret()
    paths = [await browser.start_sign_on_by_post(shop, str(number)) for number in range(30)]

    def cookie_count() -> int:
        return len([name for name in browser.cookies if name.startswith("gatehouse-saml-") and name != "gatehouse-saml-logout"])

    assert cookie_count() == 30
    assert posted_response(await browser.open(paths[3])).relay_state == "3", "the current sign-on"
    assert cookie_count() == 19
    assert "gatehouse-saml-logout" in browser.cookies
    assert (await browser.open(paths[10])).status == 400
    for number in (11, 29):
        assert posted_response(await browser.open(paths[number])).relay_state == str(number)


async def test_cookies_of_failed_sign_ons_are_deleted_too(browser: SamlBrowser, shop: SamlApplication, ports: Ports) -> None:
    await add_account(ports, "stranger@example.com")
    await browser.sign_in("stranger@example.com")
    for _ in range(25):
        assert (await browser.open(await browser.start_sign_on_by_post(shop))).status == 403
    assert [name for name in browser.cookies if name.startswith("gatehouse-saml-")] == []


async def test_a_browser_keeps_its_twenty_newest_sign_ons(
    browser: SamlBrowser, shop: SamlApplication, pool: Pool, clock: FakeClock
) -> None:
    steps = []
    for _ in range(21):
        clock.advance(timedelta(seconds=1))
        steps.append(action_of(await browser.open(await browser.start_sign_on_by_post(shop))))
    assert await run_sql(pool, "select count(*) from sign_in_flows where closed_at is null") == [(20,)]
    assert "no longer open" in (await browser.open(steps[0])).text
    assert action_of(await browser.open(steps[1])) == steps[1]


async def test_the_second_factor_is_required(browser: SamlBrowser, shop: SamlApplication, factor: Authenticator) -> None:
    after = await browser.start_sign_on(shop)
    code = await browser.sign_in_at(after)
    assert is_step(code, "code")
    assert is_step(action_of(await browser.open(after)), "sign-in"), "there is no assertion yet"
    continuation = leads_to(await browser.show_code(factor.code()))
    assert continuation == code.removesuffix("/code")
    assert posted_response(await browser.open(continuation)).name_id == EMAIL


async def test_a_wrong_password_shows_the_form_again(browser: SamlBrowser, shop: SamlApplication) -> None:
    after = await browser.start_sign_on(shop)
    page = await browser.open(after)
    page_again = await browser.fill(page, email=EMAIL, password="wrong")
    assert page_again.status == 401
    assert action_of(page_again) == action_of(page)
    assert "<h1>Sign in to <bdi>Shop</bdi></h1>" in page_again.text


async def test_every_page_names_the_application_and_has_its_design(
    api: Api, browser: SamlBrowser, shop: SamlApplication, acme: Tenant, factor: Authenticator
) -> None:
    chosen = {"logo_url": "https://cdn.acme.example/logo.svg", "primary_color": "#7a1fa2", "product_name": "Acme Portal"}
    assert (await api.patch(f"{acme.path}/branding", chosen, token=acme.token("owner"))).status == 200

    def is_designed(page: Answer) -> bool:
        checks = {
            "<bdi>Acme Portal</bdi></span></header>" in page.text,
            "--button: #7a1fa2;" in page.text,
            "img-src 'self' data: https://cdn.acme.example;" in page.headers["Content-Security-Policy"],
        }
        assert len(checks) == 1
        return checks == {True}

    after = await browser.start_sign_on(shop)
    for path in (after, action_of(await browser.open(after))):
        page = await browser.open(path)
        assert "<h1>Sign in to <bdi>Shop</bdi></h1>" in page.text
        assert is_designed(page)
    assert is_designed(await browser.open(await browser.sign_in_at(after)))
    # No sign-on, and another service's sign-on.
    for other in (f"{shop.path}/authenticate?saml_state={new_secret()}", after.replace("/shop/", "/blog/"), f"{shop.path}/authenticate"):
        page = await browser.open(f"{SIGN_IN}?{urlencode({'next': other})}")
        assert "<h1>Sign in</h1>" in page.text
        assert not is_designed(page)


# Access


async def test_members_need_no_registration(browser: SamlBrowser, shop: SamlApplication, ports: Ports, pool: Pool, acme: Tenant) -> None:
    member = await add_account(ports, "member@example.com")
    await add_member(pool, acme.org, member.id, confirmed=True)
    await browser.sign_in("member@example.com")
    assert (await browser.sign_on(shop)).name_id == "member@example.com"
    uses = await run_sql(pool, "select last_login_at from service_users where user_id = %s", member.id)
    assert uses == [(ports.clock.now(),)]


async def test_other_users_get_no_assertion(
    browser: SamlBrowser, shop: SamlApplication, ports: Ports, pool: Pool, other_tenant: Tenant
) -> None:
    await add_account(ports, "stranger@example.com")
    await add_member(pool, other_tenant.org, (await add_account(ports, "foreign@example.com")).id)
    for email in ("stranger@example.com", "foreign@example.com"):
        browser.cookies.clear()
        await browser.sign_in(email)
        page = await browser.open(await browser.start_sign_on(shop))
        assert page.status == 403
        assert "SAMLResponse" not in page.text
    assert await run_sql(pool, "select count(*) from service_users") == [(1,)], "only the first user is a user of the service"
    assert await run_sql(pool, "select count(*) from login_events where provider = 'saml' and success") == [(0,)]


async def test_a_sign_in_with_a_password_confirms_the_membership(
    browser: SamlBrowser, shop: SamlApplication, user: Account, pool: Pool, acme: Tenant
) -> None:
    await add_member(pool, acme.org, user.id)
    await browser.sign_in()
    await browser.sign_on(shop)
    taking_part = "select confirmed_at is not null from memberships where user_id = %s"
    assert await run_sql(pool, taking_part, user.id) == [(False,)]
    await browser.sign_in_at(await browser.start_sign_on(shop, ForceAuthn="true"))
    assert await run_sql(pool, taking_part, user.id) == [(True,)]


async def test_a_sign_in_through_the_api_confirms_the_membership(
    api: Api, browser: SamlBrowser, shop: SamlApplication, user: Account, pool: Pool, acme: Tenant
) -> None:
    await add_member(pool, acme.org, user.id)
    assert (await sign_in_over_api(api, await browser.start_sign_on(shop))).status == 200
    assert await run_sql(pool, "select confirmed_at is not null from memberships where user_id = %s", user.id) == [(True,)]


async def test_a_user_without_access_can_sign_in_as_another_user(browser: SamlBrowser, shop: SamlApplication, ports: Ports) -> None:
    await add_account(ports, "stranger@example.com")
    await browser.sign_in("stranger@example.com")
    path = await browser.start_sign_on(shop, "there")
    page = await browser.open(path)
    assert page.status == 403
    assert "You don&#39;t have access to this application." in page.text
    assert "stranger@example.com" in page.text
    continuation = hidden_fields(page)["next"]
    assert FLOW.fullmatch(continuation)
    onward_ = leads_to(await browser.send("/app/sign-out", form_token=form_token(page), next=continuation))
    assert onward_ == f"{SIGN_IN}?{urlencode({'next': continuation})}"
    assert "You&#39;re signed out." in (await browser.open(onward_)).text
    assert await browser.sign_in_at(path) == continuation
    response = posted_response(await browser.open(continuation))
    assert (response.name_id, response.relay_state) == (EMAIL, "there")


async def test_a_user_with_an_unverified_address_can_sign_in_as_another_user(
    browser: SamlBrowser, shop: SamlApplication, user: Account, pool: Pool
) -> None:
    await browser.sign_in()
    await run_sql(pool, "update users set email_verified_at = null where id = %s", user.id)
    page = await browser.open(await browser.start_sign_on(shop))
    assert page.status == 403
    assert "Verify your email address first" in page.text
    assert 'action="/app/sign-out"' in page.text


async def test_a_sign_on_is_recorded(browser: SamlBrowser, shop: SamlApplication, acme: Tenant, user: Account, pool: Pool) -> None:
    await browser.sign_in()
    await browser.sign_on(shop)
    await browser.sign_on(shop)
    logins = await run_sql(pool, "select user_id, org_id, service_id, success from login_events where provider = 'saml'")
    assert logins == [(user.id, shop.org, shop.id, True)] * 2
    assert await run_sql(pool, "select sum(total)::int from login_totals where service_id = %s", shop.id) == [(2,)]
    events = [(name, target, data) for name, target, data in await acme.webhook_events() if name == "user.login.success"]
    assert events == [("user.login.success", str(user.id), {"provider": "saml", "service_id": str(shop.id)})] * 2


@pytest.mark.parametrize("change", ["deactivated_at = now()", "anonymized_at = now()"])
async def test_a_closed_account_gets_no_assertion(
    browser: SamlBrowser, shop: SamlApplication, user: Account, pool: Pool, change: str
) -> None:
    await browser.sign_in()
    path = await browser.start_sign_on(shop)
    await run_sql(pool, f"update users set {change}")  # noqa: S608
    assert is_step(action_of(await browser.open(path)), "sign-in")


# The state


@pytest.fixture
async def pending_path(browser: SamlBrowser, shop: SamlApplication, user: Account) -> str:
    """Return the path of a pending sign-on that would get an assertion."""
    await browser.sign_in()
    return await browser.start_sign_on(shop)


# Sign-ins that start here


async def test_a_member_starts_a_sign_in_at_the_identity_provider(api: Api, shop: SamlApplication, acme: Tenant) -> None:
    answer = await api.get(f"{shop.management}/login?RelayState=there", token=acme.token("member"))
    assert answer.headers["Content-Type"].startswith("text/html")
    response = posted_response(answer)
    assert (response.url, response.relay_state, response.name_id) == (shop.acs_url, "there", acme.people["member"].email)
    assert "InResponseTo" not in response.document.decode()


async def test_an_api_client_gets_the_fields_as_json(api: Api, shop: SamlApplication, acme: Tenant) -> None:
    answer = await api.get(f"{shop.management}/login", token=acme.token("member"), headers={"Accept": "application/json"})
    assert answer.json.keys() == {"acs_url", "saml_response", "relay_state"}
    assert (answer.json["acs_url"], answer.json["relay_state"]) == (shop.acs_url, None)
    assert answer.headers["Cache-Control"] == "no-store"


async def test_a_bookmark_starts_a_sign_in_from_the_browser_session(browser: SamlBrowser, shop: SamlApplication, user: Account) -> None:
    """Any user who may use the service can do this, with SAML. Without a session, the sign-in page leads to the application."""
    bookmark = f"{shop.management}/login?RelayState=there%26back"
    assert "<h1>Sign in to <bdi>Shop</bdi></h1>" in (await browser.open(bookmark)).text
    response = posted_response(await browser.open(await browser.sign_in_at(bookmark)))
    assert "InResponseTo" not in response.document.decode()
    assert (response.url, response.relay_state, response.name_id) == (shop.acs_url, "there&back", EMAIL)
    response = posted_response(await browser.open(bookmark))
    assert (response.url, response.relay_state, response.name_id) == (shop.acs_url, "there&back", EMAIL)
    again = posted_response(await browser.open(bookmark))
    assert again.session_index == response.session_index, "bound to the browser session"
    await request_logout(browser, shop, EMAIL, response.session_index)
    assert not await browser.is_in(), "single logout reaches the browser session"


async def test_a_bookmark_of_an_application_without_access_offers_another_account(
    app: QuartTrio, browser: SamlBrowser, shop: SamlApplication, acme: Tenant, user: Account, api: Api, pool: Pool
) -> None:
    bookmark, signed_out = f"{shop.management}/login", FakeBrowser(app)
    await run_sql(pool, "update service_users set enrolled_by = 'self'")
    await browser.sign_in()
    page = await browser.open(bookmark)
    assert (page.status, f'value="{bookmark}?"' in page.text or f'value="{bookmark}"' in page.text) == (403, True), page.text
    assert "Sign in with another account" in page.text
    answer = await api.get(bookmark, headers={"Accept": "application/json"})
    assert (answer.status, answer.code) == (401, "UNAUTHORIZED")
    await run_sql(pool, "update saml_configurations set enabled = false")
    for path in (f"{acme.path}/services/unknown/saml/login", bookmark):  # after a sign-in, too, so a page for it would be a circle
        assert [(await each.open(path)).status for each in (browser, signed_out)] == [404, 404]


async def test_a_bookmark_waits_for_the_second_factor(browser: SamlBrowser, shop: SamlApplication, user: Account, pool: Pool) -> None:
    await browser.sign_in()
    await run_sql(pool, "update users set mfa_enabled_at = now()")
    await run_sql(pool, "update sessions set mfa_missing = true")
    assert is_step(action_of(await browser.open(f"{shop.management}/login")), "sign-in")


async def test_sign_ins_that_start_at_the_identity_provider_need_access(
    api: Api, shop: SamlApplication, acme: Tenant, other_tenant: Tenant, user: Account, ports: Ports, pool: Pool
) -> None:
    path = f"{shop.management}/login"
    session = await sign_in(ports, user)
    assert (await api.get(path, token=session.access_token)).status == 200
    await run_sql(pool, "update service_users set enrolled_by = 'self'")
    assert (await api.get(path, token=session.access_token)).status == 403
    assert (await api.get(path, token=other_tenant.token("owner"))).status == 403
    long = await api.get(f"{path}?RelayState={'x' * 4097}", token=acme.token("member"))
    assert (long.status, long.code) == (400, "BAD_REQUEST")
    await run_sql(pool, "update users set email_verified_at = null")
    assert (await api.get(path, token=acme.token("member"))).status == 403
    await run_sql(pool, "update saml_configurations set enabled = false")
    answer = await api.get(path, token=acme.token("member"))
    assert (answer.status, answer.code) == (404, "NOT_FOUND")


# Disabled identity providers

CLOSINGS = {
    "disabled": ("update saml_configurations set enabled = false", 404),
    "never configured": ("delete from saml_configurations", 404),
    "without a certificate": ("update saml_certificates set deactivated_at = now(), private_key = null", 404),
    "with an expired certificate": ("update saml_certificates set valid_until = valid_from + interval '1 second'", 404),
    "suspended": ("update organizations set status = 'suspended' where slug = 'acme'", 403),
    "pending": ("update organizations set status = 'pending' where slug = 'acme'", 403),
    "deleted": ("delete from services", 404),
}


@pytest.mark.parametrize("case", CLOSINGS)
async def test_a_disabled_identity_provider_finishes_no_sign_on(
    browser: SamlBrowser, shop: SamlApplication, pending_path: str, clock: FakeClock, pool: Pool, case: str
) -> None:
    statement, status = CLOSINGS[case]
    clock.advance(timedelta(minutes=1))
    await run_sql(pool, statement)
    request_path = redirect_url(f"{shop.path}/sso", authn_request(shop, clock.now()))
    for path in (pending_path, request_path, f"{shop.path}/metadata", f"{shop.path}/slo"):
        answer = await browser.open(path)
        assert (answer.status, "SAMLResponse" in answer.text) == (status, False), path
    assert (await browser.post_cross_site(f"{shop.path}/sso", SAMLRequest="x")).status == status


async def test_a_new_certificate_is_used_immediately(
    browser: SamlBrowser, shop: SamlApplication, pending_path: str, ports: Ports, clock: FakeClock
) -> None:
    def key_of(document: str) -> str:
        return document.partition("X509Certificate>")[2].partition("<")[0]

    before = key_of((await browser.open(f"{shop.path}/metadata")).text)
    clock.advance(timedelta(seconds=1))
    other = await new_certificate(clock.now())
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.saml.deactivate_certificates(shop.org, shop.id, clock.now())
        await tx.saml.add_certificate(shop.org, shop.id, other)
    after = key_of((await browser.open(f"{shop.path}/metadata")).text)
    assert before != after
    assert after in posted_response(await browser.open(pending_path)).document.decode()


async def test_unknown_organizations_and_services_are_not_found(browser: FakeBrowser, shop: SamlApplication) -> None:
    for path in ("/saml/unknown/shop", "/saml/acme/nothing", "/saml/twin/shop"):
        for endpoint in ("metadata", "sso?SAMLRequest=x", "slo", "authenticate?saml_state=x"):
            assert (await browser.open(f"{path}/{endpoint}")).status == 404


async def test_cookies_are_not_readable_by_scripts(browser: SamlBrowser, shop: SamlApplication, clock: FakeClock) -> None:
    answer = await browser.open(redirect_url(f"{shop.path}/sso", authn_request(shop, clock.now())))
    [cookie] = set_cookies(answer).values()
    assert cookie["httponly"]
    assert (cookie["samesite"], cookie["path"], cookie["max-age"]) == ("Lax", "/", "900")
    assert ACCOUNT not in answer.headers["Location"]
