"""Signing up on our page, also for an application, and the link that leads back (security A-7, B-1, B-3, G-2, G-4; decision 248)."""

import re
from datetime import timedelta
from html import unescape
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account, LinkInvalid
from core.accounts.model.devices import PresentedDevice
from core.authentication.flow.model import FlowTarget, new_flow
from core.authentication.flow.prove import prove
from core.authentication.methods.sign_up import SignUpLink
from core.kernel.causes import Caller
from core.kernel.values import new_secret
from ports import Ports
from tests.fakes.outside import FakeClock, FakeMailTransport
from tests.federation.api.openid.client import next_of
from tests.federation.api.relying import RelyingParty, add_relying_party, redirect_parts
from tests.support.browser import (
    HOME,
    SIGN_IN,
    FakeBrowser,
    action_of,
    form_token,
    has_ended,
    hidden_fields,
    is_step,
    leads_to,
    step_of,
)
from tests.support.builders import EMAIL, NEW_PASSWORD, PASSWORD, Answer, Api, add_account, deliver, link, run_concurrently, run_sql
from tests.support.mfa import Authenticator
from tests.support.saml import add_application
from tests.support.tenants import Tenant

SIGN_UP, RESEND = "/app/sign-up", "/app/resend-verification"
NEW = "new@example.com"
UNKNOWN = "5e0c3a0c-7c1b-4b7e-9d53-2f5e8b0c7a11"  # has a token's form
IN_MAIN = re.compile(r'<a [^>]*href="([^"]+)"')


@pytest.fixture
async def shop(acme: Tenant, browser: FakeBrowser) -> RelyingParty:
    return await add_relying_party(acme, browser)


def linked(page: Answer, start: str) -> str:
    """Return a page's link that starts with this path."""
    return next(href for href in map(unescape, IN_MAIN.findall(page.text)) if href.startswith(start))


async def sign_up(browser: FakeBrowser, email: str = NEW, *, after: str = HOME, password: str = PASSWORD) -> Answer:
    """Sign up on the page that continues at this path. An application's request begins a flow."""
    page = await browser.open(f"{SIGN_UP}?{urlencode({'next': after})}")
    if page.status == 303:
        page = await browser.open(leads_to(page))
    return await browser.fill(page, email=email, password=password, next=after)


async def mailed_link(ports: Ports, sent: FakeMailTransport) -> str:
    await deliver(ports)
    return f"/auth/verify-email?token={link(sent.emails[-1])}"


async def is_verified(pool: Pool, email: str = NEW) -> bool:
    [(verified,)] = await run_sql(pool, "select email_verified_at is not null from users where email = %s", email)
    return bool(verified)


async def test_a_new_user_of_an_application_needs_one_mail_and_two_pages(
    shop: RelyingParty, browser: FakeBrowser, ports: Ports, sent: FakeMailTransport, pool: Pool
) -> None:
    request = shop.request()
    sign_in_page = await browser.open(request)
    path = linked(sign_in_page, step_of(sign_in_page, "sign-up"))
    form = await browser.open(path)
    assert action_of(form) == path
    assert "Create your account for <bdi>Shop</bdi>" in form.text
    assert "<bdi>Shop</bdi> by <bdi>Acme</bdi> will see your email address" in form.text
    assert '<span class="initial" aria-hidden="true">A</span><bdi>Acme</bdi>' in form.text
    inbox = await browser.fill(form, email=NEW, password=PASSWORD)
    assert (inbox.status, "Check your inbox" in inbox.text) == (200, True)
    place, fields = redirect_parts(await browser.open(await mailed_link(ports, sent)))
    assert (place, "code" in fields) == (shop.redirect_uri, True)
    assert [mail.to for mail in sent.emails] == [NEW]
    assert "Acme" in sent.emails[0].subject
    assert (await shop.exchange(fields["code"])).status == 200
    user, service = await run_sql(pool, "select id::text from users where email = %s", NEW), str(shop.service)
    events = await run_sql(pool, "select org_id, target_id, data from events where name = 'user.signup.success'")
    assert events == [(shop.tenant.org, user[0][0], {"service_id": service})]
    # The account is the user's own: a registration gives the organization no power over it.
    assert await run_sql(pool, "select origin, origin_org_id from users where email = %s", NEW) == [("platform", None)]


@pytest.mark.parametrize("scope", [None, "openid"])
async def test_prompt_create_opens_the_sign_up_page(
    shop: RelyingParty, browser: FakeBrowser, ports: Ports, sent: FakeMailTransport, clock: FakeClock, scope: str | None
) -> None:
    """The parameter comes from Initiating User Registration 1.0. The link works much later."""
    request = shop.request(prompt="create", login_hint=NEW, scope=scope, response_type="code")
    page = await browser.open(request)
    assert is_step(action_of(page), "sign-up")
    assert ("<h1>Create your account for <bdi>Shop</bdi></h1>" in page.text, f'value="{NEW}"' in page.text) == (True, True)
    await browser.fill(page, email=NEW, password=PASSWORD)
    clock.advance(timedelta(hours=20))
    answer = await browser.open(await mailed_link(ports, sent))
    if scope is not None:
        answer = await browser.answer(answer, "continue")
    assert "code" in redirect_parts(answer)[1]


@pytest.mark.parametrize("prompt", [None, "create", "login consent", "none"])
async def test_an_application_can_begin_with_the_sign_up(
    shop: RelyingParty, browser: FakeBrowser, ports: Ports, sent: FakeMailTransport, prompt: str | None
) -> None:
    request = shop.request(prompt=prompt, scope="openid", response_type="code")
    begun = leads_to(await browser.open(f"{SIGN_UP}?{urlencode({'next': request})}"))
    before, after = parse_qs(urlsplit(request).query), parse_qs(urlsplit(begun).query)
    prompts = after.pop("prompt")
    assert prompts == {None: ["create"], "login consent": ["login consent create"]}.get(prompt, [prompt])
    assert {**before, "prompt": prompts} == {**after, "prompt": prompts}
    page = await browser.open(begun)
    if prompt == "none":
        assert redirect_parts(page)[1]["error"] == "login_required"
        return
    assert is_step(action_of(page), "sign-up")
    await browser.fill(page, email=NEW, password=PASSWORD)
    answer = await browser.answer(await browser.open(await mailed_link(ports, sent)), "continue")
    assert "code" in redirect_parts(answer)[1]


async def test_a_user_who_is_signed_in_continues_at_the_request(shop: RelyingParty, browser: FakeBrowser, user: Account) -> None:
    await browser.sign_in()
    for request in (shop.request(), shop.request(prompt="consent")):
        assert leads_to(await browser.open(f"{SIGN_UP}?{urlencode({'next': request})}")) == request


async def test_prompt_create_shows_the_sign_up_page_in_a_session_too(shop: RelyingParty, browser: FakeBrowser, user: Account) -> None:
    """A user who has an account can still sign in there. Then the request goes on, and asks no more."""
    await browser.sign_in(EMAIL)
    page = await browser.open(shop.request(prompt="create"))
    assert (page.status, "<h1>Create your account" in page.text) == (200, True)
    after = next_of(page)
    assert linked(page, step_of(page, "sign-in"))
    assert "<h1>Create your account" in (await browser.open(after)).text, "the session of before is not enough"
    form = await browser.open(f"{SIGN_UP}?{urlencode({'next': after})}", follows=False)
    assert leads_to(form) == after
    answer = await browser.fill(await browser.open(step_of(page, "sign-in")), email=EMAIL, password=PASSWORD)
    assert leads_to(answer) == after
    assert "<h1>Create your account" not in (await browser.open(after)).text


async def test_prompt_create_in_a_session_leads_the_new_user_to_the_application(
    shop: RelyingParty, browser: FakeBrowser, user: Account, ports: Ports, sent: FakeMailTransport
) -> None:
    await browser.sign_in(EMAIL)
    page = await browser.open(shop.request(prompt="create"))
    await browser.fill(page, email=NEW, password=PASSWORD)
    page = await browser.open(await mailed_link(ports, sent))
    assert f"Sign in as <strong>{NEW}</strong> to continue to <bdi>Shop</bdi>" in page.text
    consent = await browser.open(leads_to(await browser.fill(page, email=NEW, password=PASSWORD)))
    answer = await browser.answer(consent, "continue")
    assert "code" in redirect_parts(answer)[1]


async def test_prompt_create_needs_an_application_that_admits_anyone(shop: RelyingParty, browser: FakeBrowser, acme: Tenant) -> None:
    await run_sql(acme.pool, "update services set access_policy = 'members' where id = %s", shop.service)
    assert is_step(action_of(await browser.open(shop.request(prompt="create"))), "sign-in")


async def test_another_browser_verifies_and_shows_the_sign_in(
    shop: RelyingParty, browser: FakeBrowser, app: QuartTrio, ports: Ports, sent: FakeMailTransport, pool: Pool
) -> None:
    flow = action_of(await sign_up(browser, after=shop.request())).split("/")[3]
    phone = FakeBrowser(app)
    page = await phone.open(await mailed_link(ports, sent))
    assert page.status == 200
    assert await is_verified(pool)
    assert not await phone.is_in()
    assert f'value="{NEW}"' in page.text
    # A mailbox owner who did not sign up learns about the password, and can replace it.
    assert "Didn't create this account?" in page.text
    assert parse_qs(urlsplit(linked(page, "/app/forgot-password")).query) == {"next": [f"{shop.request()}&flow={flow}"]}
    consent = await phone.open(leads_to(await phone.sign_in(NEW, after=shop.request())))
    assert "code" in redirect_parts(await phone.answer(consent, "continue"))[1]


async def test_another_browser_continues_after_prompt_create(
    shop: RelyingParty, browser: FakeBrowser, app: QuartTrio, ports: Ports, sent: FakeMailTransport
) -> None:
    """The user has signed up, so no page asks for it again."""
    await browser.fill(await browser.open(shop.request(prompt="create")), email=NEW, password=PASSWORD)
    phone = FakeBrowser(app)
    page = await phone.open(await mailed_link(ports, sent))
    signed_in = await phone.fill(page, email=NEW, password=PASSWORD, next=hidden_fields(page)["next"])
    answer = await phone.open(leads_to(signed_in))
    assert "code" in redirect_parts(await phone.answer(answer, "continue"))[1]


async def test_a_verification_link_signs_in_only_the_browser_that_chose_the_password(
    browser: FakeBrowser, app: QuartTrio, api: Api, ports: Ports, sent: FakeMailTransport, pool: Pool
) -> None:
    """An attacker registers a victim's address, and the victim opens all links that can result."""
    attacker, victim = FakeBrowser(app), browser
    await sign_up(attacker, password="the password of the squatter")
    await victim.open(SIGN_UP)
    assert (await sign_up(victim)).status == 409
    assert (await victim.submit(RESEND, RESEND, email=NEW)).status == 200
    await deliver(ports)
    assert len(sent.emails) == 2
    for mail in sent.emails:  # the first link works, and then the address is verified
        await victim.open(f"/auth/verify-email?token={link(mail)}")
        assert not await victim.is_in()
    # A link for an API account is bound to no browser.
    await api.post("/api/auth/register", {"email": "api@example.com", "password": PASSWORD})
    await victim.submit(RESEND, RESEND, email="api@example.com")
    page = await victim.open(await mailed_link(ports, sent))
    assert (page.status, await victim.is_in(), await is_verified(pool, "api@example.com")) == (200, False, True)


async def test_the_link_is_bound_in_the_use_case_too(browser: FakeBrowser, ports: Ports, sent: FakeMailTransport, pool: Pool) -> None:
    await sign_up(browser)
    token = (await mailed_link(ports, sent)).partition("=")[2]
    flow = new_flow(ports.clock.now(), FlowTarget.PAGE, "/app")
    with pytest.raises(LinkInvalid):
        await prove(ports, Caller(), flow, SignUpLink(token, new_secret()), PresentedDevice())
    assert not await is_verified(pool)


async def test_the_link_of_a_sign_up_does_not_replace_a_session(
    browser: FakeBrowser, user: Account, ports: Ports, sent: FakeMailTransport, pool: Pool
) -> None:
    await sign_up(browser)
    await browser.sign_in()
    page = await browser.open(await mailed_link(ports, sent))
    assert (page.status, await is_verified(pool)) == (200, True)
    assert linked(page, HOME) == HOME
    assert EMAIL in (await browser.open("/app/account/email")).text


async def test_a_second_factor_is_required_after_a_sign_up(
    browser: FakeBrowser, ports: Ports, sent: FakeMailTransport, pool: Pool, factor: Authenticator
) -> None:
    await sign_up(browser)
    moved = "update mfa set user_id = (select id from users where email = %s)"
    await run_sql(pool, moved, NEW)
    await run_sql(pool, "update users set mfa_enabled_at = now() where email = %s", NEW)
    page = await browser.open(await mailed_link(ports, sent))
    assert is_step(action_of(page), "code")
    assert not await browser.is_in()


@pytest.mark.slow
async def test_one_of_many_concurrent_requests_with_the_link_signs_in(
    browser: FakeBrowser, app: QuartTrio, ports: Ports, sent: FakeMailTransport, pool: Pool
) -> None:
    await sign_up(browser)
    path = await mailed_link(ports, sent)
    tabs = [FakeBrowser(app) for _ in range(20)]
    for tab in tabs:
        tab.cookies = dict(browser.cookies)
    answers = await run_concurrently(20, lambda number: tabs[number].open(path))
    assert sorted(answer.status for answer in answers) == [303] + [400] * 19
    assert await run_sql(pool, "select count(*) from sessions") == [(1,)]


async def test_a_link_that_was_sent_again_continues_the_sign_up(
    shop: RelyingParty, browser: FakeBrowser, app: QuartTrio, ports: Ports, sent: FakeMailTransport, clock: FakeClock
) -> None:
    await sign_up(browser, after=shop.request())
    first = await mailed_link(ports, sent)
    await FakeBrowser(app).submit(RESEND, RESEND, email=NEW)
    assert redirect_parts(await browser.open(await mailed_link(ports, sent)))[0] == shop.redirect_uri
    del browser.cookies["gatehouse-session"]
    second = await browser.open(first)  # it would sign in a user who may have changed the password since
    assert (second.status, "This link no longer works" in second.text) == (400, True)
    assert has_ended(await browser.open(linked(second, SIGN_IN)))  # and not the request, which was answered


@pytest.mark.parametrize(("page", "target"), [("verify-email", RESEND), ("reset-password", "/app/forgot-password")])
async def test_an_ended_link_has_a_form_for_a_new_one(
    browser: FakeBrowser, ports: Ports, sent: FakeMailTransport, page: str, target: str
) -> None:
    await add_account(ports, NEW, verified=False)
    ended = await browser.open(f"/auth/{page}?token={UNKNOWN}")
    assert ended.status == 400
    assert UNKNOWN not in ended.text
    assert f'action="{target}"' in ended.text
    assert ("Changing your address?" in ended.text) == (page == "verify-email")
    assert (await browser.submit(target, f"/auth/{page}?token={UNKNOWN}", email=NEW)).status == 200
    await deliver(ports)
    assert [mail.to for mail in sent.emails] == [NEW]


async def test_an_unverified_user_gets_a_button_for_a_new_link(
    browser: FakeBrowser, ports: Ports, sent: FakeMailTransport, pool: Pool
) -> None:
    await add_account(ports, NEW, verified=False)
    wrong = await browser.sign_in(NEW, "not the password")
    assert RESEND not in wrong.text  # nothing says that the account exists (security B-1)
    page = await browser.sign_in(NEW, after="/app/account/devices")
    assert page.status == 401
    assert f'action="{RESEND}"' in page.text
    await browser.submit(RESEND, RESEND, email=NEW, next="/app/account/devices")
    await browser.open(await mailed_link(ports, sent))
    assert await is_verified(pool)


async def test_a_reset_continues_at_the_application(
    shop: RelyingParty, browser: FakeBrowser, ports: Ports, sent: FakeMailTransport
) -> None:
    await add_account(ports)
    page = await browser.open(shop.request())
    forgot = await browser.open(linked(page, step_of(page, "forgot-password")))
    assert (await browser.fill(forgot, email=EMAIL)).status == 200
    await deliver(ports)
    assert "Acme" in sent.emails[-1].subject
    done = await browser.send("/auth/reset-password", token=link(sent.emails[-1]), new_password=NEW_PASSWORD)
    sign_in_page = await browser.open(linked(done, step_of(page, "sign-in")))
    answer = await browser.open(leads_to(await browser.fill(sign_in_page, email=EMAIL, password=NEW_PASSWORD)))
    assert "code" in redirect_parts(await browser.answer(answer, "continue"))[1]


async def test_a_refused_sign_up_creates_nothing_and_says_what_to_do(browser: FakeBrowser, user: Account, pool: Pool) -> None:
    taken = await sign_up(browser, EMAIL)
    assert (taken.status, "already exists" in taken.text) == (409, True)
    assert linked(taken, SIGN_IN) == SIGN_IN
    for email, password in ((NEW, "short"), ("not an address", PASSWORD), ("", "")):
        answer = await sign_up(browser, email, password=password)
        assert (answer.status, 'role="alert"' in answer.text) == (400, True)
        assert PASSWORD not in answer.text
    assert (await browser.send(SIGN_UP, email=NEW, password=PASSWORD)).status == 403
    assert await run_sql(pool, "select (select count(*) from users), (select count(*) from mails)") == [(1, 0)]


async def test_a_signed_in_user_does_not_sign_up_again(browser: FakeBrowser, user: Account) -> None:
    await browser.sign_in()
    assert leads_to(await browser.open(f"{SIGN_UP}?next=%2Fapp%2Faccount%2Fdevices")) == "/app/account/devices"
    assert leads_to(await browser.open(f"{SIGN_UP}?next=%2F%2Fevil.example")) == HOME


async def test_an_application_that_admits_only_members_offers_no_sign_up(shop: RelyingParty, browser: FakeBrowser, pool: Pool) -> None:
    page = await browser.open(shop.request())
    assert step_of(page, "sign-up") in page.text
    await run_sql(pool, "update services set access_policy = 'members'")
    assert "/sign-up" not in (await browser.open(action_of(page))).text
    assert "/sign-up" not in (await browser.open(shop.request())).text


@pytest.mark.parametrize("target", ["members", "assigned", "saml"])
async def test_a_sign_in_without_a_sign_up_creates_nothing(
    shop: RelyingParty, acme: Tenant, browser: FakeBrowser, ports: Ports, pool: Pool, target: str
) -> None:
    request = shop.request()
    if target == "saml":
        kiosk = await add_application(ports, pool, acme.org, acme.slug, "kiosk")
        request = f"{acme.path}/services/{kiosk.slug}/saml/login"
    else:
        await run_sql(pool, "update services set access_policy = %s", target)
    page = await browser.open(request)
    if page.status == 303:
        page = await browser.open(leads_to(page))
    sign_in_page = action_of(page)
    assert action_of(await browser.open(step_of(page, "sign-up"))) == sign_in_page
    answer = await browser.send(step_of(page, "sign-up"), form_token=form_token(page), email=NEW, password=PASSWORD)
    assert (answer.status, leads_to(answer)) == (303, sign_in_page)
    begun = await browser.open(leads_to(await browser.open(f"{SIGN_UP}?{urlencode({'next': request})}")))
    assert is_step(action_of(begun), "sign-in")
    assert await run_sql(pool, "select (select count(*) from users where email = %s), (select count(*) from mails)", NEW) == [(0, 0)]


async def test_a_sign_up_on_the_way_to_saml_admits_no_stranger(
    acme: Tenant, browser: FakeBrowser, ports: Ports, pool: Pool, sent: FakeMailTransport
) -> None:
    kiosk = await add_application(ports, pool, acme.org, acme.slug, "kiosk")
    after = f"{acme.path}/services/{kiosk.slug}/saml/login"
    assert (await browser.submit(SIGN_UP, SIGN_UP, email=NEW, password=PASSWORD, next=after)).status == 200
    page = await browser.open(leads_to(await browser.open(await mailed_link(ports, sent))))
    assert (page.status, "No access" in page.text) == (403, True)
    assert await run_sql(pool, "select count(*) from service_users") == [(0,)]


@pytest.mark.parametrize(
    ("slug", "status", "is_reported"), [("acme", "active", True), ("acme", "suspended", False), ("nobody", "active", False)]
)
async def test_a_registration_for_an_organization_is_an_event_of_it(
    acme: Tenant, api: Api, pool: Pool, slug: str, status: str, is_reported: bool
) -> None:
    await acme.set_status(status)
    assert (await api.post("/api/auth/register", {"email": NEW, "password": PASSWORD, "org_slug": slug})).status == 200
    events = await run_sql(pool, "select org_id, data from events where name = 'user.signup.success'")
    assert events == [(acme.org, {"service_id": None}) if is_reported else (None, {})]
    again = await api.post("/api/auth/register", {"email": NEW, "password": PASSWORD, "org_slug": slug})
    assert again.status == 409
    assert await run_sql(pool, "select count(*) from events where name = 'user.signup.success'") == [(1,)]
