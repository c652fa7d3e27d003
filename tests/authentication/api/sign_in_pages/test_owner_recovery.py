"""The link from `gatehouse owner recover` (security I-7): for platform owners, once, for 15 minutes, with the second factor."""

from collections.abc import Awaitable, Callable

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.authentication import owner_recovery
from core.authentication.owner_recovery import FIRST_LIFETIME, LIFETIME, NoSuchPlatformOwner
from core.kernel.causes import SYSTEM
from core.kernel.page_paths import HOME_PATH
from core.kernel.values import Email
from entrypoints.http.app import Edge
from ports import Ports
from ports.storage import Transaction
from tests.accounts.api.mfa.test_codes import PENDING_SIGN_INS, TRUSTED_DEVICES
from tests.authentication.api.sign_in_pages.paths import count_sessions
from tests.fakes.outside import FakeClock, FakeMailTransport
from tests.support.browser import FakeBrowser, form_token, is_step, leads_to
from tests.support.builders import Answer, Api, add_account, add_platform_owner, deliver, run_concurrently, run_sql, sign_in
from tests.support.mfa import add_mfa
from tests.support.passkeys.users import PasskeyUser

PATH = "/auth/recover-owner"
ADA, EVE = Email("ada@platform.example"), Email("eve@platform.example")


@pytest.fixture
async def owner(ports: Ports) -> Account:
    """The platform owner who is locked out."""
    return await add_platform_owner(ports, ADA)


async def use(browser: FakeBrowser, token: str) -> Answer:
    """Open the link and press the button."""
    page = await browser.open(f"{PATH}?token={token}")
    if page.status != 200:
        return page
    return await browser.send(PATH, form_token=form_token(page), token=token)


async def test_a_link_signs_the_owner_in_and_is_recorded(browser: FakeBrowser, owner: Account, ports: Ports, pool: Pool) -> None:
    token = await owner_recovery.create_link(ports, ADA, "root")
    assert (await browser.open(f"{PATH}?token={token}")).status == 200, "opening the link does not use it up"
    assert leads_to(await use(browser, token)) == HOME_PATH
    assert ADA in (await browser.open("/app/account")).text
    assert await run_sql(pool, "select user_id, proofs -> 0 ->> 'method' from sessions") == [(owner.id, "owner_recovery")]
    log = "select action, target_id, actor_id, org_id, details from audit_log where action like 'platform%%' order by action desc"
    assert await run_sql(pool, log) == [
        ("platform.owner.recovery_created", str(owner.id), None, None, {"operator": "root", "factors_reset": False}),
        ("platform.owner.recovered", str(owner.id), owner.id, None, {}),
    ]


async def test_the_first_sign_in_asks_an_owner_without_a_name_for_it(
    app: QuartTrio, browser: FakeBrowser, owner: Account, ports: Ports, pool: Pool
) -> None:
    token = await owner_recovery.create_first_link(ports, ADA) or ""
    page = await browser.open(f"{PATH}?token={token}")
    assert "Your name (optional)" in page.text
    for name in ("x" * 101, "a\nb"):
        refused = await browser.send(PATH, form_token=form_token(page), token=token, name=name)
        assert (refused.status, "The name must have 1 to 100 characters" in refused.text) == (400, True)
    assert leads_to(await browser.send(PATH, form_token=form_token(page), token=token, name=" Ada Lovelace ")) == HOME_PATH
    assert await run_sql(pool, "select name from users where id = %s", owner.id) == [("Ada Lovelace",)]
    page = await FakeBrowser(app).open(f"{PATH}?token={await owner_recovery.create_link(ports, ADA, 'root')}")
    assert "Your name" not in page.text, "they have one now"


async def test_all_other_active_platform_owners_get_an_email(
    owner: Account, ports: Ports, sent: FakeMailTransport, clock: FakeClock
) -> None:
    await add_platform_owner(ports, EVE)
    await add_account(ports, "closed@platform.example", None, is_platform_owner=True, deactivated_at=clock.now())
    await add_account(ports, "member@example.com")
    token = await owner_recovery.create_link(ports, ADA, "root")
    await deliver(ports)
    [email] = sent.emails
    assert (email.to, email.subject) == (EVE, "A sign-in link for a platform owner - Gatehouse")
    for text in (email.text, email.html):
        assert ADA in text
        assert token not in text


async def test_a_link_works_once(owner: Account, ports: Ports, pool: Pool, app: QuartTrio, edge: Edge) -> None:
    token = await owner_recovery.create_link(ports, ADA, "root")
    browsers = [FakeBrowser(app, edge.base_url) for _ in range(20)]
    pages = [await browser.open(f"{PATH}?token={token}") for browser in browsers]

    async def press(number: int) -> int:
        return (await browsers[number].send(PATH, form_token=form_token(pages[number]), token=token)).status

    assert sorted(await run_concurrently(20, press)) == [303, *[400] * 19]
    assert await count_sessions(pool) == 1


async def test_the_second_factor_stays_required(browser: FakeBrowser, owner: Account, ports: Ports, pool: Pool) -> None:
    factor = await add_mfa(ports, owner)
    assert is_step(leads_to(await use(browser, await owner_recovery.create_link(ports, ADA, "root"))), "code")
    assert await count_sessions(pool) == 0
    assert await browser.ends_at(await browser.show_code(factor.code())) == HOME_PATH
    assert await count_sessions(pool) == 1
    assert await run_sql(pool, "select count(*) from mfa where setup_at is not null") == [(1,)]


async def test_a_link_that_resets_the_factors_needs_none_and_removes_all(
    api: Api, browser: FakeBrowser, owner: Account, ports: Ports, pool: Pool, sent: FakeMailTransport
) -> None:
    await add_platform_owner(ports, EVE)
    earlier = await sign_in(ports, owner)
    await PasskeyUser(api, earlier.access_token).add_key()
    await add_mfa(ports, owner)
    await run_sql(pool, TRUSTED_DEVICES)
    await run_sql(pool, PENDING_SIGN_INS)
    token = await owner_recovery.create_link(ports, ADA, "root", resets_factors=True)
    assert (await browser.open(f"{PATH}?token={token}")).status == 200
    assert await factors_of(pool, owner) == [(True, True, 1, 10)], "only its use removes them"
    assert await browser.ends_at(await use(browser, token)) in (HOME_PATH, "/app/enroll")
    assert await factors_of(pool, owner) == [(False, False, 0, 0)]
    assert (await api.get("/api/user", token=earlier.access_token)).status == 401
    assert (await api.post("/api/auth/refresh", {"refresh_token": earlier.refresh_token})).status == 401
    assert await count_sessions(pool) == 1, "that of the link"
    assert await run_sql(pool, "select 1 from devices where user_id = %s and trust_hash is not null", owner.id) == []
    assert await run_sql(pool, "select 1 from sign_in_flows where user_id = %s", owner.id) == []
    assert (await use(browser, token)).status == 400, "once"
    await deliver(ports)
    created, used = (
        "A link that removes the factors of a platform owner - Gatehouse",
        "The factors of a platform owner were removed - Gatehouse",
    )
    assert sorted((email.to, email.subject) for email in sent.emails if email.subject in (created, used)) == [
        (ADA, used),
        (EVE, created),
        (EVE, used),
    ]
    for email in sent.emails:
        assert (ADA in email.text, token in email.text) == (True, False)
    log = "select details from audit_log where action = 'platform.owner.recovery_created'"
    assert await run_sql(pool, log) == [({"operator": "root", "factors_reset": True},)]


async def factors_of(pool: Pool, account: Account) -> list[tuple[object, ...]]:
    statement = """
        select mfa_enabled_at is not null, passkey_second_at is not null, (select count(*) from passkeys),
               (select count(*) from backup_codes)
        from users where id = %s"""
    return await run_sql(pool, statement, account.id)


@pytest.mark.parametrize("resets_factors", [False, True])
async def test_a_link_of_either_kind_replaces_one_of_the_other(
    browser: FakeBrowser, owner: Account, ports: Ports, *, resets_factors: bool
) -> None:
    token = await owner_recovery.create_link(ports, ADA, "root", resets_factors=resets_factors)
    newer = await owner_recovery.create_link(ports, ADA, "root", resets_factors=not resets_factors)
    assert (await use(browser, token)).status == 400
    assert (await use(browser, newer)).status == 303


async def test_a_link_that_is_not_valid_gets_one_page_and_signs_in_to_nothing(
    browser: FakeBrowser, owner: Account, ports: Ports, pool: Pool, clock: FakeClock
) -> None:
    async def create() -> str:
        return await owner_recovery.create_link(ports, ADA, "root")

    async def within(act: Callable[[Transaction], Awaitable[object]]) -> None:
        async with ports.storage.transaction(by=SYSTEM) as tx:
            await act(tx)

    pages = {}

    async def check(reason: str, token: str) -> None:
        page = await browser.open(f"{PATH}?token={token}")
        sent = await browser.send(PATH, form_token=form_token(await browser.open("/app/sign-in")), token=token)
        pages[reason] = (page.status, sent.status)
        assert "Create a new one on the server: gatehouse owner recover EMAIL." in sent.text, reason

    await check("unknown", "x")
    await check("empty", "")
    first = await create()
    second = await create()
    await check("replaced", first)
    clock.advance(LIFETIME)
    await check("expired", second)
    token = await create()
    await within(lambda tx: tx.accounts.demote(owner.id, clock.now()))
    await check("demoted", token)
    await within(lambda tx: tx.accounts.promote(owner.id, clock.now()))
    await within(lambda tx: tx.accounts.deactivate(owner.id, clock.now()))
    await check("deactivated", token)
    await within(lambda tx: tx.accounts.reactivate(owner.id, clock.now()))
    await within(lambda tx: tx.accounts.change_email(owner.id, EVE, clock.now()))
    await check("another address", token)
    # The button decides. The page shows nothing about the account.
    assert pages == {reason: (200 if reason in ("demoted", "deactivated", "another address") else 400, 400) for reason in pages}
    assert await count_sessions(pool) == 0


async def test_only_active_platform_owners_get_a_link(ports: Ports, pool: Pool, clock: FakeClock) -> None:
    await add_account(ports, "member@example.com")
    await add_account(ports, "closed@platform.example", None, is_platform_owner=True, deactivated_at=clock.now())
    for email in ("member@example.com", "closed@platform.example", "unknown@example.com"):
        with pytest.raises(NoSuchPlatformOwner, match="No active account with this email address is a platform owner"):
            await owner_recovery.create_link(ports, Email(email), "root")
    counts = "select (select count(*) from one_time_tokens), (select count(*) from mails), (select count(*) from audit_log)"
    assert await run_sql(pool, counts) == [(0, 0, 0)]


async def test_the_button_needs_the_page_of_this_browser(browser: FakeBrowser, owner: Account, ports: Ports, pool: Pool) -> None:
    token = await owner_recovery.create_link(ports, ADA, "root")
    assert (await browser.send(PATH, token=token, form_token="")).status == 403
    assert await count_sessions(pool) == 0
    assert leads_to(await use(browser, token)) == HOME_PATH


async def test_each_start_has_a_new_link_for_ten_minutes_until_the_first_owner_has_signed_in(
    browser: FakeBrowser, owner: Account, ports: Ports, clock: FakeClock
) -> None:
    first = await owner_recovery.create_first_link(ports, ADA) or ""
    expired = await owner_recovery.create_first_link(ports, ADA) or ""
    assert (await use(browser, first)).status == 400, "a later start has replaced it"
    clock.advance(FIRST_LIFETIME)
    assert (await use(browser, expired)).status == 400
    token = await owner_recovery.create_first_link(ports, ADA) or ""
    assert leads_to(await use(browser, token)) == HOME_PATH
    assert await owner_recovery.create_first_link(ports, ADA) is None, "the owner has signed in"


async def test_a_start_has_no_link_for_other_accounts_or_beside_another_platform_owner(owner: Account, ports: Ports) -> None:
    await add_account(ports, "member@example.com")
    assert await owner_recovery.create_first_link(ports, Email("member@example.com")) is None
    assert await owner_recovery.create_first_link(ports, Email("unknown@example.com")) is None
    await add_platform_owner(ports, EVE)
    assert await owner_recovery.create_first_link(ports, ADA) is None


@pytest.mark.parametrize("resets_factors", [False, True])
async def test_the_page_says_whether_the_link_removes_all_factors(
    browser: FakeBrowser, owner: Account, ports: Ports, resets_factors: bool
) -> None:
    token = await owner_recovery.create_link(ports, ADA, "root", resets_factors=resets_factors)
    page = (await browser.open(f"{PATH}?token={token}")).text
    told = "Signing in removes all passkeys, the authenticator app and the backup codes of the account, and signs it out" in page
    assert (told, "Sign in and remove all factors" in page, "you'll need that too" in page) == (
        resets_factors,
        resets_factors,
        not resets_factors,
    )
