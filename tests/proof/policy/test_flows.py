"""Browser sign-ins under a policy, from the first page to the code or the console page."""

import re
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.kernel.roles import MEMBER
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.proof.policy.world import ALLOWED, CALLBACK, STATES, STEP_UP, World, new_world, outcome_of, outcome_of_flow, outcome_of_page
from tests.support.browser import form_token, is_step, leads_to, main_of
from tests.support.builders import PASSWORD, Answer, Api, run_concurrently, run_sql
from tests.support.mfa import Authenticator
from tests.support.passkeys.users import add_passkeys
from tests.support.saml.browser import SamlBrowser, redirect_target

CONSOLE = "/app/organizations/acme"
DUE: dict[str, Any] = {"second_factor": ["everyone"], "due_at": {"second_factor": "2026-04-01T00:00:00Z"}}


@pytest.fixture
async def world(api: Api, app: QuartTrio, ports: Ports, pool: Pool, clock: FakeClock) -> World:
    return await new_world(api, app, ports, pool, clock)


def code_of(answer: Answer) -> str:
    """Return the code in the redirect to the application."""
    target = leads_to(answer)
    assert target.startswith(CALLBACK), target
    return parse_qs(urlsplit(target).query)["code"][0]


async def test_a_trusted_device_does_not_skip_a_second_factor_that_the_policy_asks_for(world: World) -> None:
    """After the password, the page asks for the code, although the platform itself would not."""
    browser = world.browser
    await world.enter(STATES["code used"])
    assert world.authenticator is not None
    browser.cookies.clear()
    assert is_step(leads_to(await browser.sign_in(world.ada.email)), "code")
    await browser.show_code(world.authenticator.code(1), trust="yes")
    browser.cookies = {name: value for name, value in browser.cookies.items() if not name.endswith("-session")}
    world.clock.advance(timedelta(days=2))
    for document, asks in (({"second_factor": ["everyone"]}, False), ({"second_factor": ["everyone"], "device_trust_days": 1}, True)):
        await world.put(document)
        page = await browser.open(leads_to(await world.authorize()))
        target = leads_to(await browser.fill(page, email=world.ada.email, password=PASSWORD))
        assert is_step(target, "code") == asks, document
        if asks:
            target = leads_to(await browser.show_code(world.authenticator.code()))
        code_of(await browser.open(target, follows=False))
        browser.cookies = {name: value for name, value in browser.cookies.items() if not name.endswith("-session")}


@pytest.mark.parametrize("protocol", ["OAuth", "SAML"])
@pytest.mark.parametrize("asks_by", ["policy", "settings"])
@pytest.mark.parametrize("strength", ["a second factor", "a passkey"])
async def test_a_password_leads_to_the_passkey_that_the_application_asks_for(
    world: World, strength: str, asks_by: str, protocol: str
) -> None:
    """The account has a passkey, which sign-ins do not ask for. The flow continues after it."""
    await world.enter(STATES["passkey left out"])
    await add_passkeys(world.pool, world.ada.id, "gatehouse.test")
    rule = {"a second factor": "second_factor", "a passkey": "phishing_resistant"}[strength]
    if asks_by == "policy":
        await world.put({rule: ["everyone"]})
    else:
        await run_sql(world.pool, "update services set required_acr = %s", "mfa" if rule == "second_factor" else "phr")
    words = f"{'Acme' if asks_by == 'policy' else 'Shop'} requires {strength}. Sign in with your passkey"
    target = leads_to(await world.authorize()) if protocol == "OAuth" else redirect_target(await world.sign_on(), 303)
    for _ in range(3):
        page = await world.browser.open(target)
        assert words in main_of(page)
        if asks_by == "policy" or strength == "a passkey":
            assert main_of(page).index('data-passkey="get"') < main_of(page).index("Sign in as another user"), "the other ways are folded"
        target = leads_to(await world.browser.fill(page, email=world.ada.email, password=PASSWORD))
        target = leads_to(await world.browser.open(target, follows=False))
    silent = await (world.authorize(prompt="none") if protocol == "OAuth" else world.sign_on(IsPassive="true"))
    assert await outcome_of_flow(world, silent) == STEP_UP
    world.state = STATES["passkey used"]
    await world.open_browser()
    assert await outcome_of_flow(world, await world.browser.open(target, follows=False)) == ALLOWED


async def test_a_user_without_a_second_factor_sets_one_up_and_continues(world: World) -> None:
    """The account pages lead back to the flow. The session has the proof, so nothing is asked again."""
    browser = world.browser
    await world.enter(STATES["bare"])
    await world.put({"second_factor": ["everyone"]})
    enroll = leads_to(await browser.open(leads_to(await world.authorize()), follows=False))
    page = await browser.open(enroll)
    assert "Acme requires a second factor." in main_of(page)
    assert "Not now" not in main_of(page)
    setup = await browser.send("/app/account/two-factor/setup", form_token=form_token(page))
    assert f'href="{enroll}"'.replace("&", "&amp;") in setup.text, "the pages of the account lead back"
    secret = re.search(r'<code class="secret">([A-Z2-7 ]+)</code>', setup.text)
    assert secret is not None
    code = Authenticator(secret[1].replace(" ", ""), world.clock).code()
    confirmed = await browser.send("/app/account/two-factor/confirm", form_token=form_token(setup), code=code)
    assert "Your backup codes" in confirmed.text
    code_of(await browser.open(enroll))
    assert "gatehouse-enrollment" not in browser.cookies


BUTTONS = {"password": "Set a password", "totp": "Set up an authenticator app", "passkey": "Create a passkey"}


COLUMNS = {"password": "password_hash = 'a hash'", "totp": "mfa_enabled_at = now()", "passkey": "passkey_count = 1"}


async def set_up(world: World, factor: str) -> None:
    await run_sql(world.pool, f"update users set {COLUMNS[factor]} where id = %s", world.ada.id)  # noqa: S608  (columns of ours)


@pytest.mark.slow
@pytest.mark.parametrize("starts_later", [False, True])
@pytest.mark.parametrize("present", [["password"], ["passkey"], ["password", "totp"], ["passkey", "totp"]], ids="-".join)
async def test_the_enroll_page_offers_what_the_account_lacks_until_nothing_is_missing(
    world: World, present: list[str], starts_later: bool
) -> None:
    """The user prefers another factor to a passkey, which would meet most policies at once."""
    await world.enter(STATES["passkey used" if "passkey" in present else "bare"])
    for document in (
        {"second_factor": ["everyone"]},
        {"phishing_resistant": ["everyone"]},
        {"methods": ["password", "totp"], "second_factor": ["everyone"]},
        {"methods": ["password", "passkey", "totp"], "second_factor": ["everyone"]},
        {"methods": ["password"]},
        {"methods": ["passkey"]},
    ):
        await run_sql(world.pool, "update users set password_hash = null, passkey_count = 0, mfa_enabled_at = null")
        has = {*present}
        for factor in present:
            await set_up(world, factor)
        due = {rule: "2999-01-01T00:00:00Z" for rule in ("methods", "second_factor", "phishing_resistant") if rule in document}
        await world.put({**document, **({"due_at": due} if starts_later else {})})
        for _ in range(3):
            page = await world.browser.open("/app/enroll?org=acme&next=/app/account")
            if page.status == 303:  # nothing is missing, or the user signs in again with it
                break
            offered = [factor for factor, button in BUTTONS.items() if button in main_of(page)]
            assert offered, document
            assert not has.intersection(offered), (document, has, offered)
            chosen = [factor for factor in offered if factor != "passkey"] or offered
            await set_up(world, chosen[0])
            has.add(chosen[0])
        assert page.status == 303, (document, has)


async def test_a_rule_that_starts_later_is_shown_once_a_day(world: World) -> None:
    browser = world.browser
    await world.enter(STATES["bare"])
    await world.put(DUE)
    for _ in range(2):
        page = await browser.open(leads_to(await browser.open(leads_to(await world.authorize()), follows=False)))
        assert "You have until" in main_of(page)
        fields = dict(re.findall(r'<input type="hidden" name="(org|next)" value="([^"]*)">', page.text))
        flow = leads_to(await browser.send("/app/enroll", form_token=form_token(page), **fields))
        code_of(await browser.open(flow, follows=False))
        code_of(await world.authorize())
        world.clock.advance(timedelta(days=1))
    world.clock.advance(timedelta(days=20))
    page = await browser.open(leads_to(await browser.open(leads_to(await world.authorize()), follows=False)))
    assert "Not now" not in main_of(page)
    # Leaving it for later is no longer possible.
    fields = {"org": "acme", "next": "/app/account"}
    assert leads_to(await browser.send("/app/enroll", form_token=form_token(page), **fields)).startswith("/app/enroll?org=acme")


@pytest.mark.parametrize(("document", "wait"), [({"session_lifetime_minutes": 15}, 16), ({"session_idle_minutes": 5}, 6)])
async def test_the_console_asks_for_a_new_proof_and_the_session_at_the_platform_goes_on(
    world: World, document: dict[str, int], wait: int
) -> None:
    browser = world.browser
    await world.enter(STATES["bare"])
    await world.put(document)
    assert outcome_of_page(await browser.open(CONSOLE)) == "allowed"
    world.clock.advance(timedelta(minutes=wait))
    again = leads_to(await browser.open(CONSOLE))
    assert (await browser.open("/app/account")).status == 200
    page = await browser.open(again)
    assert "Acme" in main_of(page)
    assert "confirm" in page.text.lower()
    back = leads_to(await browser.fill(page, password=PASSWORD, **dict(re.findall(r'name="(next|policy)" value="([^"]*)"', page.text))))
    assert leads_to(await browser.open(back)) == CONSOLE
    assert outcome_of_page(await browser.open(CONSOLE)) == "allowed"


async def test_use_keeps_a_session_from_being_idle(world: World) -> None:
    """Every use counts, also by API tokens, but only in this organization."""
    await world.enter(STATES["bare"])
    await world.put({"session_idle_minutes": 5})
    for _ in range(3):
        assert outcome_of_page(await world.browser.open(CONSOLE)) == "allowed"
        assert outcome_of(await world.api.get("/api/organizations/acme/members", token=world.token)) == "allowed"
        world.clock.advance(timedelta(minutes=4))
    world.clock.advance(timedelta(minutes=2))
    await world.browser.open("/app/account")
    assert outcome_of_page(await world.browser.open(CONSOLE)) == "step up"


async def test_the_stricter_rule_of_an_application_concerns_it_alone(world: World) -> None:
    await world.enter(STATES["bare"])
    await world.put({"second_factor": ["everyone"]}, service=world.service)
    assert outcome_of_page(await world.browser.open(CONSOLE)) == "allowed"
    enroll = leads_to(await world.browser.open(leads_to(await world.authorize()), follows=False))
    assert parse_qs(urlsplit(enroll).query)["service"] == ["shop"]
    assert "Shop requires a second factor." in main_of(await world.browser.open(enroll))


async def test_rules_about_admins_concern_no_members(api: Api, app: QuartTrio, ports: Ports, pool: Pool, clock: FakeClock) -> None:
    """A member who becomes an admin meets them with the next request."""
    world = await new_world(api, app, ports, pool, clock, MEMBER)
    await world.enter(STATES["bare"])
    await world.put({"second_factor": ["admins"], "phishing_resistant": ["admins"], "admin_networks": ["198.51.100.0/24"]})
    assert outcome_of_page(await world.browser.open(CONSOLE)) == "allowed"
    code_of(await world.authorize())
    await run_sql(pool, "update memberships set role = 'admin' where user_id = %s", world.ada.id)
    assert outcome_of_page(await world.browser.open(CONSOLE)) == "refused"
    await world.put({"phishing_resistant": ["admins"]})
    assert outcome_of_page(await world.browser.open(CONSOLE)) == "enroll"


async def test_only_a_call_that_is_answered_confirms_a_membership(world: World) -> None:
    """Neither a call that the policy refuses nor a call that the role refuses does."""
    await world.enter(STATES["bare"])
    members, target = "/api/organizations/acme/members", {"org_slug": "acme", "service_slug": "shop"}
    calls: dict[str, Callable[[], Awaitable[Answer]]] = {
        "an address of the organization": lambda: world.api.get(members, token=world.token),
        "the selection": lambda: world.api.post("/api/organizations/acme/select", token=world.token),
        "a sign-in to an application": lambda: world.api.post(
            "/api/auth/login", {"email": world.ada.email, "password": PASSWORD, **target}
        ),
    }

    async def confirming(**refusing: object) -> set[str]:
        """Return the calls that confirm the membership, and that were answered."""
        found = set()
        await world.put(refusing)
        for name, call in calls.items():
            await run_sql(world.pool, "update memberships set confirmed_at = null")
            answer = await call()
            [(is_confirmed,)] = await run_sql(world.pool, "select confirmed_at is not null from memberships")
            assert is_confirmed == (answer.status == 200), name
            found |= {name} if is_confirmed else set()
        return found

    assert await confirming(phishing_resistant=["everyone"]) == set()
    assert await confirming() == {*calls}
    await run_sql(world.pool, "update memberships set role = 'member', confirmed_at = null")
    assert (await world.api.post("/api/organizations/acme/invitations", {"email": "e@example.com"}, token=world.token)).status == 403
    assert await run_sql(world.pool, "select confirmed_at from memberships") == [(None,)]


async def test_a_grace_period_is_announced_to_programs_that_sign_users_in(world: World) -> None:
    await world.enter(STATES["bare"])
    await world.put(DUE)
    target = {"email": world.ada.email, "password": PASSWORD, "org_slug": "acme", "service_slug": "shop"}
    answer = await world.api.post("/api/auth/login", target)
    assert answer.json["enrolment_url"].endswith("/app/enroll?org=acme&service=shop")
    assert answer.json["enrolment_due_at"] == DUE["due_at"]["second_factor"]
    assert "enrolment_url" not in (await world.api.login(world.ada.email, PASSWORD)).json


async def test_the_page_that_turns_a_factor_off_leads_to_security_if_it_is_off(world: World) -> None:
    await world.enter(STATES["passkey left out"])
    for page in ("/app/account/two-factor/disable", "/app/account/passkeys/second-factor"):
        assert leads_to(await world.browser.open(page)) == "/app/account/security"


async def test_the_page_that_turns_a_factor_off_says_what_then_asks_for_another(world: World) -> None:
    await world.enter(STATES["code used"])
    page = "/app/account/two-factor/disable"
    assert "another factor" not in main_of(await world.browser.open(page))
    await world.put({"second_factor": ["high_risk"]})
    await world.put({"second_factor": ["everyone"]}, service=world.service)
    [(name,)] = await run_sql(world.pool, "select name from services where id = %s", world.service)
    text = main_of(await world.browser.open(page))
    assert "<bdi>Acme</bdi> then asks you to set up another factor if the risk of a sign-in is high" in text
    assert f"<bdi>{name}</bdi> then asks you to set up another factor before you sign in there." in text
    assert leads_to(await world.browser.submit(page, page)) == "/app/account/security", "the user may do without"


async def test_a_changed_policy_asks_again(world: World) -> None:
    await world.enter(STATES["code used"])
    await world.put({"second_factor": ["everyone"]})
    assert outcome_of_page(await world.browser.open(CONSOLE)) == "allowed"
    await world.put({"phishing_resistant": ["everyone"]})
    assert outcome_of_page(await world.browser.open(CONSOLE)) == "enroll"
    await world.put({})
    assert outcome_of_page(await world.browser.open(CONSOLE)) == "allowed"


async def test_a_user_is_reminded_once_a_day_in_all_sessions(world: World) -> None:
    await world.enter(STATES["bare"])
    await world.put(DUE)
    first, second = world.browser, SamlBrowser(world.app, world.clock)
    world.browser = second
    await world.open_browser()

    async def open_page(number: int) -> str:
        return outcome_of_page(await (first, second)[number % 2].open(CONSOLE))

    outcomes = await run_concurrently(20, open_page)
    assert (outcomes.count("enroll"), outcomes.count("allowed")) == (1, 19)
    code_of(await world.authorize())
    world.clock.advance(timedelta(days=1))
    assert sorted(await run_concurrently(20, open_page)).count("enroll") == 1


async def test_the_enroll_page_names_no_organization_to_strangers(world: World) -> None:
    await world.enter(STATES["bare"])
    await world.put({"phishing_resistant": ["everyone"]})
    assert "Acme requires a passkey." in main_of(await world.browser.open("/app/enroll?org=acme"))
    await run_sql(world.pool, "delete from memberships")
    assert "Acme requires a passkey." in main_of(await world.browser.open("/app/enroll?org=acme")), "an end user"
    await run_sql(world.pool, "delete from service_users")
    await run_sql(world.pool, "delete from end_users")
    for path in ("/app/enroll?org=acme", "/app/enroll?org=acme&service=unknown"):
        assert leads_to(await world.browser.open(path)) == "/app"
    assert "Acme requires a passkey." in main_of(await world.browser.open("/app/enroll?org=acme&service=shop")), "its sign-in page names it"
    enroll = leads_to(await world.browser.open(leads_to(await world.authorize()), follows=False))
    assert enroll.startswith("/app/enroll?org=acme&service=shop")


async def test_the_enroll_page_does_not_tell_whether_an_organization_exists(world: World) -> None:
    await world.enter(STATES["bare"])
    assert leads_to(await world.browser.open("/app/enroll?org=unknown")) == "/app"
    await run_sql(world.pool, "update organizations set slug = 'globex' where id = %s", world.org)
    assert leads_to(await world.browser.open("/app/enroll?org=acme")) == "/app"
