"""A platform owner acts as a user in their browser's console (security I-2, I-3, I-4, I-5)."""

from datetime import timedelta

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.kernel.roles import ADMIN, MEMBER
from core.kernel.values import Email
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.support.browser import FakeBrowser, hidden_fields, leads_to
from tests.support.builders import PASSWORD, Api, add_account, add_member, add_organization, run_sql, sign_in

STEWARD = "steward@platform.example"
END = "/app/impersonation/end"
BANNER = "You are acting as"


@pytest.fixture
async def user(ports: Ports, pool: Pool) -> Account:
    user = await add_account(ports, "grace@example.com")
    for slug in ("acme", "globex"):
        await add_member(pool, await add_organization(pool, slug), user.id, ADMIN, confirmed=True)
    return user


@pytest.fixture
async def browser(app: QuartTrio, ports: Ports) -> FakeBrowser:
    await add_account(ports, STEWARD, PASSWORD, is_platform_owner=True)
    browser = FakeBrowser(app)
    await browser.sign_in(STEWARD, PASSWORD)
    return browser


def page_of(user: Account) -> str:
    return f"/app/platform/people/{user.id}"


async def begin(browser: FakeBrowser, user: Account, **fields: str) -> None:
    answer = await browser.submit(f"{page_of(user)}/impersonate", page_of(user), reason="Ticket 4711", **fields)
    assert leads_to(answer) == "/app", answer.text


async def end(browser: FakeBrowser, page: str = "/app/account") -> str:
    return leads_to(await browser.submit(END, page))


async def test_the_console_shows_what_the_user_sees_with_a_banner(browser: FakeBrowser, user: Account, pool: Pool) -> None:
    await begin(browser, user)
    members = await browser.open("/app/organizations/acme/members")
    assert members.status == 200
    assert BANNER in members.text
    assert "grace@example.com" in members.text
    assert "/app/platform" not in members.text, "the navigation is that of the user"
    for refused in ("/app/platform/people", page_of(user)):
        answer = await browser.open(refused)
        assert (answer.status, "while impersonating" in answer.text) == (403, True)
    recorded = "select details ->> 'route', success from audit_log where action = 'impersonation.request' and org_id is null"
    assert set(await run_sql(pool, recorded)) == {
        ("/app/organizations/<org_slug>/members", True),
        ("/app/platform/people", False),
        ("/app/platform/people/<user_id>", False),
    }
    assert await end(browser) == page_of(user)
    back = await browser.open("/app/platform/people")
    assert "Impersonation ended." in back.text
    assert BANNER not in back.text


async def test_a_form_acts_only_as_the_user_for_whom_it_was_opened(browser: FakeBrowser, user: Account, pool: Pool, ports: Ports) -> None:
    other = await add_account(ports, "other@example.com")
    [(org,)] = await run_sql(pool, "select id from organizations where slug = 'acme'")
    await add_member(pool, org, other.id, MEMBER, confirmed=True)
    path = f"/app/organizations/acme/members/{other.id}/end-sessions"
    own = hidden_fields(await browser.open("/app/account"))["form_token"]
    await begin(browser, user)
    assert (await browser.send(path, form_token=own)).status == 403
    page = await browser.open(path)
    token = hidden_fields(page)["form_token"]
    assert (await browser.send("/app/account/profile", form_token=token, given_name="Eve")).status == 403, "it outlives the impersonation"
    assert (await browser.send(path, form_token=token)).status == 303
    await end(browser)
    assert (await browser.send("/app/account/profile", form_token=token, given_name="Eve")).status == 403
    [(actor, impersonator)] = await run_sql(pool, "select actor_id, impersonator_id from audit_log where action = 'user.sessions_revoked'")
    steward = await run_sql(pool, "select id from users where email = %s", STEWARD)
    assert (actor, [(impersonator,)]) == (user.id, steward)


async def test_an_impersonation_in_one_organization_stays_there(browser: FakeBrowser, user: Account) -> None:
    await begin(browser, user, org_slug="acme")
    assert (await browser.open("/app/organizations/acme/members")).status == 200
    assert (await browser.open("/app/organizations/globex/members")).status == 403
    refused = await browser.open("/app/platform/people")
    assert (refused.status, "You are acting as another person." in refused.text) == (403, True)
    assert leads_to(await browser.send("/app/impersonation/end", **hidden_fields(refused))) == page_of(user)


@pytest.mark.parametrize("reason", ["", "x" * 501])
async def test_a_refused_start_changes_nothing(browser: FakeBrowser, user: Account, pool: Pool, reason: str) -> None:
    answer = await browser.submit(f"{page_of(user)}/impersonate", page_of(user), reason=reason)
    assert answer.status == 400
    assert await run_sql(pool, "select count(*) from sessions where impersonator_id is not null") == [(0,)]


async def test_an_impersonation_ends_with_the_session_of_the_browser_and_after_an_hour(
    browser: FakeBrowser, user: Account, clock: FakeClock, pool: Pool
) -> None:
    await begin(browser, user)
    clock.advance(timedelta(hours=1))
    later = await browser.open("/app/platform/people")
    assert (later.status, BANNER in later.text) == (200, False)
    assert await end(browser) == "/app"
    await browser.submit("/app/sign-out")
    await browser.sign_in(STEWARD, PASSWORD)
    await begin(browser, user)
    assert BANNER in (await browser.open("/app/account")).text
    await browser.submit("/app/sign-out")
    assert not await browser.is_in()
    assert leads_to(await browser.sign_in(STEWARD, PASSWORD)).startswith("/app")
    assert BANNER not in (await browser.open("/app/account")).text


@pytest.mark.parametrize(
    "change",
    [
        "update users set is_platform_owner = false where email = %s",
        "update users set is_platform_owner = true where email <> %s",
    ],
)
async def test_it_ends_with_the_rights_that_it_needs(browser: FakeBrowser, user: Account, pool: Pool, change: str) -> None:
    await begin(browser, user)
    await run_sql(pool, change, STEWARD)
    page = await browser.open("/app/account")
    assert (page.status, BANNER in page.text) == (200, False)
    assert STEWARD in page.text


async def test_an_impersonation_of_the_api_is_not_one_of_the_browser(browser: FakeBrowser, user: Account, api: Api, ports: Ports) -> None:
    async with ports.storage.reading() as read:
        steward = await read.accounts.by_email(Email(STEWARD))
    assert steward is not None
    token = (await sign_in(ports, steward)).access_token
    answer = await api.post(f"/api/platform/impersonate/{user.id}", {"reason": "Ticket 4711"}, token=token)
    assert answer.status == 200
    assert BANNER not in (await browser.open("/app/account")).text
