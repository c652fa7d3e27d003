"""The latest sign-ins on the security page, and the list with all sign-ins."""

import re

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.accounts.model.devices import Location
from core.authentication.model.login import LoginFailure
from ports import Ports
from tests.accounts.api.account_pages.paths import SECURITY, SIGN_INS, page_text, section_of, without_markup
from tests.fakes.outside import FakeClock
from tests.support.browser import FakeBrowser, main_of
from tests.support.builders import FIREFOX, add_account, add_organization, run_sql
from tests.support.rows import failed_login
from tests.support.services import add_service


async def test_the_latest_sign_ins_have_their_result_method_place_and_device(
    browser: FakeBrowser, ports: Ports, user: Account, pool: Pool, clock: FakeClock
) -> None:
    org = await add_organization(pool, "acme")
    service = await add_service(pool, org, "shop")
    await run_sql(pool, "update services set name = '<b>Shop</b>'")
    stranger = await add_account(ports, "stranger@example.com")
    async with ports.storage.autocommit() as statements:
        for account, agent in ((user, FIREFOX), (user, "<script>alert(1)</script>"), (stranger, FIREFOX)):
            failure = failed_login(
                account.id,
                at=clock.now(),
                reason=LoginFailure.MFA,
                org_id=org,
                service_id=service,
                address="198.51.100.7",
                agent=agent,
                location=Location("Lisbon", "PT"),
            )
            await statements.failed_logins.record_failure(failure)
    for page in (section_of(await browser.open(SECURITY), "sign-ins"), main_of(await browser.open(SIGN_INS))):
        rows = [without_markup(row) for row in re.findall(r"<tr>(.*?)</tr>", page, re.DOTALL)][1:]
        assert len(rows) == 3
        assert "signed in Password Gatehouse 203.0.113.9 Firefox on Linux" in " ".join(rows)
        assert "failed Wrong second factor Password <b>Shop</b> Lisbon, PT 198.51.100.7 · Firefox on Linux" in " ".join(rows)
        assert "<script" not in page
        assert "<bdi>&lt;b&gt;Shop&lt;/b&gt;</bdi>" in page
        assert "acme" not in page.lower()


async def test_the_security_page_shows_the_ten_newest_sign_ins(browser: FakeBrowser, pool: Pool) -> None:
    for minutes in range(1, 60):
        await run_sql(
            pool,
            """
            insert into login_events (id, user_id, provider, success, address, created_at, seen_by)
            select gen_random_uuid(), user_id, provider, true, %s, created_at - %s * interval '1 minute', 'all'
            from login_events where address <> all(%s) limit 1""",
            f"192.0.2.{minutes}",
            minutes,
            [f"192.0.2.{earlier}" for earlier in range(1, 60)],
        )
    page = section_of(await browser.open(SECURITY), "sign-ins")
    assert page.count("<tr>") == 1 + 10
    assert ("192.0.2.9<" in page, "192.0.2.10<" in page) == (True, False)
    assert "Page 1 of 2" in page_text(await browser.open(SIGN_INS))
    assert "192.0.2.59" in (await browser.open(f"{SIGN_INS}?page=2")).text
