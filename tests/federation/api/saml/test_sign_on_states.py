"""SAML sign-on states, and sign-ins through the API that complete them.

Covers security A-10, S-4, X-5 and X-8, and decision 175.
"""

from datetime import timedelta
from urllib.parse import parse_qs, urlsplit

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from adapters.saml.documents import XmlDocuments
from core.accounts.model.accounts import Account
from core.federation.saml.model.configuration import SamlIdentityProvider
from core.federation.saml.model.messages import SamlResponse
from core.federation.saml.model.sign_on import STATE_TTL
from core.kernel.errors import Limited
from core.kernel.values import digest, new_secret
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.support.browser import action_of, is_step
from tests.support.builders import BASE_URL, EMAIL, Answer, Api, add_account, run_concurrently, run_during, run_sql, sign_in
from tests.support.mfa import Authenticator
from tests.support.saml import SamlApplication, add_application, authn_request, posted_response, redirect_url
from tests.support.saml.browser import SamlApplications, SamlBrowser, sign_in_over_api
from tests.support.services import add_service_user
from tests.support.tenants import Tenant

# Too many documents in the signing queue


class BusyDocuments:
    """SAML documents that raise Limited until `free` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.free, sign = False, XmlDocuments.response

        async def response(documents: XmlDocuments, provider: SamlIdentityProvider, message: SamlResponse) -> bytes:
            if not self.free:
                raise Limited(1)
            return await sign(documents, provider, message)

        monkeypatch.setattr(XmlDocuments, "response", response)


@pytest.mark.parametrize("options", [{}, {"IsPassive": "true", "ForceAuthn": "true"}])
async def test_reloading_the_page_gets_the_response(
    browser: SamlBrowser, shop: SamlApplication, user: Account, monkeypatch: pytest.MonkeyPatch, options: dict[str, str]
) -> None:
    busy = BusyDocuments(monkeypatch)
    await browser.sign_in()
    path = await browser.start_sign_on(shop, "there", **options)
    page = await browser.open(path)
    assert (page.status, page.headers["Retry-After"]) == (429, "1")
    busy.free = True
    assert posted_response(await browser.open(path)).relay_state == "there"
    assert await refused_with_400(await browser.open(path))


async def test_reloading_the_page_after_an_api_sign_in_gets_the_response(
    api: Api, browser: SamlBrowser, shop: SamlApplication, user: Account, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = BusyDocuments(monkeypatch)
    answer = await sign_in_over_api(api, await browser.start_sign_on(shop))
    path = answer.json["redirect_url"].removeprefix(BASE_URL)
    assert (await browser.open(path)).status == 429
    assert not await browser.is_in()
    busy.free = True
    assert posted_response(await browser.open(path)).name_id == EMAIL
    assert await browser.is_in()
    assert await run_sql(pool, "select count(*) from sessions where browser_hash is not null and ended_at is null") == [(1,)]


# The state


@pytest.fixture
async def pending_path(browser: SamlBrowser, shop: SamlApplication, user: Account) -> str:
    """Return the path of a pending sign-on that would get an assertion."""
    await browser.sign_in()
    return await browser.start_sign_on(shop)


async def refused_with_400(answer: Answer) -> bool:
    return answer.status == 400 and "SAMLResponse" not in answer.text and "Start again at the application" in answer.text


async def test_a_state_works_once(browser: SamlBrowser, pending_path: str) -> None:
    assert (await browser.open(pending_path)).status == 200
    assert await refused_with_400(await browser.open(pending_path))


async def test_a_state_expires_after_15_minutes(browser: SamlBrowser, pending_path: str, clock: FakeClock) -> None:
    clock.advance(STATE_TTL)
    assert await refused_with_400(await browser.open(pending_path))


async def test_a_state_works_only_in_its_own_browser(app: QuartTrio, browser: SamlBrowser, pending_path: str, clock: FakeClock) -> None:
    victim = SamlBrowser(app, clock)
    await victim.sign_in()
    assert await refused_with_400(await victim.open(pending_path))
    [name] = [name for name in browser.cookies if "saml" in name]
    victim.cookies[name] = new_secret()
    assert await refused_with_400(await victim.open(pending_path))
    assert (await browser.open(pending_path)).status == 200, "in its own browser it still works"


async def test_a_state_works_only_for_its_own_service(
    browser: SamlBrowser, shop: SamlApplication, pending_path: str, ports: Ports, pool: Pool, acme: Tenant, user: Account
) -> None:
    blog = await add_application(ports, pool, acme.org, acme.slug, "blog")
    await add_service_user(ports, blog.id, user.id, signed_in=False)
    assert await refused_with_400(await browser.open(pending_path.replace(shop.path, blog.path)))
    for query in ("", "?saml_state=", f"?saml_state={new_secret()}"):
        assert await refused_with_400(await browser.open(f"{shop.path}/authenticate{query}"))


async def test_states_and_cookies_are_stored_as_hashes(browser: SamlBrowser, pending_path: str, pool: Pool) -> None:
    [state] = parse_qs(urlsplit(pending_path).query)["saml_state"]
    [cookie] = [value for name, value in browser.cookies.items() if "saml" in name]
    assert await run_sql(pool, "select secret_hash, browser_hash from sign_in_flows") == [(digest(state), digest(cookie))]


async def test_a_head_request_does_not_finish_a_sign_on(
    browser: SamlBrowser, shop: SamlApplication, pending_path: str, clock: FakeClock, pool: Pool
) -> None:
    assert (await browser.open(pending_path, method="HEAD")).status == 200
    assert (await browser.open(redirect_url(f"{shop.path}/sso", authn_request(shop, clock.now())), method="HEAD")).status == 200
    assert await run_sql(pool, "select count(*) from sign_in_flows") == [(1,)]
    assert (await browser.open(pending_path)).status == 200


@pytest.mark.slow
async def test_of_twenty_parallel_requests_one_gets_the_response(browser: SamlBrowser, pending_path: str, pool: Pool) -> None:
    answers = await run_concurrently(20, lambda _: browser.open(pending_path))
    assert sorted(answer.status for answer in answers) == [200] + [400] * 19
    assert await run_sql(pool, "select count(*) from login_events where provider = 'saml'") == [(1,)]


@pytest.mark.slow
async def test_of_twenty_parallel_copies_of_a_request_one_is_accepted(
    browser: SamlBrowser, shop: SamlApplication, clock: FakeClock
) -> None:
    address = redirect_url(f"{shop.path}/sso", authn_request(shop, clock.now()))
    answers = await run_concurrently(20, lambda _: browser.open(address))
    assert sorted(answer.status for answer in answers) == [302] + [400] * 19


# Sign-in through the API


async def test_a_frontend_signs_a_user_in_for_a_sign_on(
    api: Api, browser: SamlBrowser, shop: SamlApplication, user: Account, pool: Pool
) -> None:
    answer = await sign_in_over_api(api, await browser.start_sign_on(shop))
    assert answer.status == 200, answer.text
    assert answer.json["access_token"]
    path = answer.json["redirect_url"].removeprefix(BASE_URL)
    assert not await browser.is_in()
    page = await browser.open(path)
    assert posted_response(page).name_id == EMAIL
    assert await browser.is_in(), "the browser is signed in too"
    [login_device, browser_device] = await run_sql(
        pool, "select device_id from sessions where user_id = %s order by created_at desc limit 2", user.id
    )
    assert login_device == browser_device != (None,), "on the device of the API sign-in, so that it ends with that device"
    assert (await browser.open(path)).status == 400


async def test_the_assertion_has_the_time_of_the_api_sign_in(
    api: Api, browser: SamlBrowser, shop: SamlApplication, applications: SamlApplications, user: Account, pool: Pool, clock: FakeClock
) -> None:
    """SAML core section 2.7.2 requires this.

    A later request with ForceAuthn does not accept that sign-in (section 3.4.1).
    """
    answer = await sign_in_over_api(api, await browser.start_sign_on(shop))
    clock.advance(timedelta(minutes=1))
    blog = await applications.add("blog")
    fresh = await browser.start_sign_on(blog, ForceAuthn="true")
    clock.advance(timedelta(minutes=1))
    response = posted_response(await browser.open(answer.json["redirect_url"].removeprefix(BASE_URL)))
    assert response.find("//saml:AuthnStatement/@AuthnInstant") == "2026-03-14T15:09:26.535Z"
    assert response.root.get("IssueInstant") == "2026-03-14T15:11:26.535Z"
    started, ends = "2026-03-14 15:09:26.535897+00", "2026-06-12 15:09:26.535897+00"
    assert await run_sql(pool, "select created_at = %s, ends_at = %s from sessions where browser_hash is not null", started, ends) == [
        (True, True)
    ]
    assert is_step(action_of(await browser.open(fresh)), "sign-in")


async def test_a_frontend_sends_the_second_factor_for_a_sign_on(
    api: Api, browser: SamlBrowser, shop: SamlApplication, factor: Authenticator
) -> None:
    path = await browser.start_sign_on(shop)
    answer = await sign_in_over_api(api, path)
    assert answer.json["mfa_required"] is True
    assert "redirect_url" not in answer.json
    assert is_step(action_of(await browser.open(path)), "sign-in")
    verified = await api.post("/api/auth/mfa/verify", {"code": factor.code()}, token=answer.json["access_token"])
    assert posted_response(await browser.open(verified.json["redirect_url"].removeprefix(BASE_URL))).name_id == EMAIL


async def test_an_attackers_state_that_a_victim_completes_signs_neither_browser_in(
    api: Api, app: QuartTrio, browser: SamlBrowser, shop: SamlApplication, user: Account, clock: FakeClock
) -> None:
    attacker = browser
    path = await attacker.start_sign_on(shop)
    answer = await sign_in_over_api(api, path)  # by the victim
    page = await attacker.open(path)
    assert "SAMLResponse" not in page.text
    assert not await attacker.is_in()
    victim = SamlBrowser(app, clock)
    assert await refused_with_400(await victim.open(answer.json["redirect_url"].removeprefix(BASE_URL)))
    assert not await victim.is_in()


async def test_an_api_session_that_has_ended_gives_no_assertion(
    api: Api, browser: SamlBrowser, shop: SamlApplication, user: Account
) -> None:
    answer = await sign_in_over_api(api, await browser.start_sign_on(shop))
    await api.post("/api/auth/logout", token=answer.json["access_token"])
    assert await refused_with_400(await browser.open(answer.json["redirect_url"].removeprefix(BASE_URL)))


async def test_an_api_session_ended_by_the_organization_gives_no_assertion(
    api: Api, browser: SamlBrowser, shop: SamlApplication, user: Account, acme: Tenant
) -> None:
    """The sign-on is pending again (security S-4)."""
    pending_path = await browser.start_sign_on(shop)
    answer = await sign_in_over_api(api, pending_path)
    revocation = await api.delete(f"{acme.path}/users/{user.id}/sessions", token=acme.token("owner"))
    assert revocation.status == 200
    page = await browser.open(answer.json["redirect_url"].removeprefix(BASE_URL))
    assert is_step(action_of(page), "sign-in")
    assert not await browser.is_in()
    second_answer = await sign_in_over_api(api, pending_path)
    assert posted_response(await browser.open(second_answer.json["redirect_url"].removeprefix(BASE_URL))).name_id == EMAIL


async def test_sign_ins_of_a_frontend_are_in_the_log_of_the_application_alone(
    api: Api, browser: SamlBrowser, pending_path: str, pool: Pool, acme: Tenant
) -> None:
    await run_sql(pool, "delete from login_events")
    assert (await sign_in_over_api(api, pending_path, password="wrong password")).status == 401
    assert (await sign_in_over_api(api, pending_path)).status == 200
    rows = await run_sql(pool, "select success, org_id, seen_by from login_events where attempts > 0")
    assert sorted(rows, key=str) == [(False, acme.org, "all"), (True, None, "platform")]


async def test_a_frontend_cannot_complete_an_unknown_sign_on(api: Api, browser: SamlBrowser, pending_path: str, clock: FakeClock) -> None:
    unknown = await sign_in_over_api(api, f"?saml_state={new_secret()}")
    assert (unknown.status, unknown.code) == (400, "BAD_REQUEST")
    both = await sign_in_over_api(api, pending_path, org_slug="acme", service_slug="shop")
    assert both.status == 400
    clock.advance(STATE_TTL)
    answer = await sign_in_over_api(api, pending_path)
    assert (answer.status, answer.code) == (400, "BAD_REQUEST")


@pytest.mark.parametrize("status", ["suspended", "pending"])
async def test_a_frontend_cannot_complete_a_sign_on_of_an_inactive_organization(
    api: Api, browser: SamlBrowser, shop: SamlApplication, user: Account, pool: Pool, status: str
) -> None:
    path = await browser.start_sign_on(shop)
    await run_sql(pool, f"update organizations set status = '{status}' where slug = 'acme'")  # noqa: S608
    answer = await sign_in_over_api(api, path)
    assert (answer.status, answer.code) == (403, "ORGANIZATION_NOT_ACTIVE")
    assert await run_sql(pool, "select count(*) from sessions where user_id = %s", user.id) == [(0,)]


async def test_a_second_factor_does_not_complete_a_sign_on_of_a_suspended_organization(
    api: Api, browser: SamlBrowser, shop: SamlApplication, user: Account, factor: Authenticator, pool: Pool
) -> None:
    answer = await sign_in_over_api(api, await browser.start_sign_on(shop))
    await run_sql(pool, "update organizations set status = 'suspended' where slug = 'acme'")
    refusal = await api.post("/api/auth/mfa/verify", {"code": factor.code()}, token=answer.json["access_token"])
    assert (refusal.status, refusal.code) == (403, "ORGANIZATION_NOT_ACTIVE")
    assert await run_sql(pool, "select count(*) from sessions where user_id = %s and ended_at is null", user.id) == [(0,)]
    await run_sql(pool, "update organizations set status = 'active' where slug = 'acme'")
    assert (await api.post("/api/auth/mfa/verify", {"code": factor.code()}, token=answer.json["access_token"])).status == 200


async def test_an_api_sign_in_replaces_the_session_of_the_browser(
    api: Api, browser: SamlBrowser, shop: SamlApplication, user: Account, ports: Ports, pool: Pool
) -> None:
    await add_account(ports, "other@example.com")
    await browser.sign_in("other@example.com")
    answer = await sign_in_over_api(api, await browser.start_sign_on(shop))
    assert posted_response(await browser.open(answer.json["redirect_url"].removeprefix(BASE_URL))).name_id == EMAIL
    query = "select user_id from sessions where browser_hash is not null and ended_at is null"
    assert await run_sql(pool, query) == [(user.id,)]


async def test_an_api_sign_in_of_the_same_user_starts_a_new_saml_session(
    api: Api, browser: SamlBrowser, shop: SamlApplication, user: Account
) -> None:
    await browser.sign_in()
    before = await browser.sign_on(shop)
    answer = await sign_in_over_api(api, await browser.start_sign_on(shop))
    response = posted_response(await browser.open(answer.json["redirect_url"].removeprefix(BASE_URL)))
    assert response.name_id == EMAIL
    assert response.session_index != before.session_index


# Sessions that end during the sign-on


@pytest.mark.slow
@pytest.mark.parametrize("way", ["request", "bookmark", "token"])
@pytest.mark.parametrize(
    "change", ["update sessions set ended_at = now() where user_id = %s", "update users set deactivated_at = now() where id = %s"]
)
async def test_a_session_that_ends_during_the_sign_on_gets_no_assertion(
    api: Api, browser: SamlBrowser, shop: SamlApplication, user: Account, ports: Ports, pool: Pool, way: str, change: str
) -> None:
    await browser.sign_in()
    token = (await sign_in(ports, user)).access_token
    path = await browser.start_sign_on(shop) if way == "request" else f"{shop.management}/login"

    async def sign_on() -> Answer:
        return await (api.get(path, token=token) if way == "token" else browser.open(path))

    lock = "select 1 from users where id = %s for update"
    answer = await run_during(pool, [(lock, (user.id,)), (change, (user.id,))], sign_on)
    assert (answer.status, "SAMLResponse" in answer.text) == (401, False)
    assert await run_sql(pool, "select count(*) from login_events where provider = 'saml'") == [(0,)]
    assert await run_sql(pool, "select count(*) from sign_in_flows where closed_at is not null") == [(0,)]
