"""The page that transfers an organization's ownership."""

import re

from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.kernel.roles import ADMIN, OWNER
from ports import Ports
from tests.fakes.outside import FakeMailTransport
from tests.support.browser import FakeBrowser, leads_to
from tests.support.builders import PASSWORD, add_account, add_member, add_organization, deliver, run_sql

PAGE = "/app/organizations/acme/settings/transfer"


async def test_the_chosen_admin_stays_chosen_after_a_mistyped_name(app: QuartTrio, ports: Ports, pool: Pool) -> None:
    acme = await add_organization(pool, "acme")
    people = {}
    for name, role in (("owner", OWNER), ("ada", ADMIN), ("eve", ADMIN)):
        people[name] = await add_account(ports, f"{name}@example.com", PASSWORD)
        await add_member(pool, acme, people[name].id, role, confirmed=True)
    browser = FakeBrowser(app)
    await browser.sign_in("owner@example.com", PASSWORD)
    for name in ("ada", "eve"):
        answer = await browser.submit(PAGE, PAGE, new_owner_user_id=str(people[name].id), confirmation="Acne")
        assert answer.status == 400
        assert re.findall(r'<option value="([^"]+)" selected>', answer.text) == [str(people[name].id)]


async def test_a_transfer_needs_a_reason_and_both_owners_get_it(app: QuartTrio, ports: Ports, pool: Pool, sent: FakeMailTransport) -> None:
    acme = await add_organization(pool, "acme")
    for name, role in (("owner", OWNER), ("ada", ADMIN)):
        account = await add_account(ports, f"{name}@example.com", PASSWORD)
        await add_member(pool, acme, account.id, role, confirmed=True)
    [(name_of_acme,)] = await run_sql(pool, "select name from organizations")
    browser = FakeBrowser(app)
    await browser.sign_in("owner@example.com", PASSWORD)
    chosen = {"new_owner_user_id": str(account.id), "confirmation": name_of_acme}
    answer = await browser.submit(PAGE, PAGE, **chosen)
    assert (answer.status, "Enter a value." in answer.text) == (400, True)
    assert leads_to(await browser.submit(PAGE, PAGE, **chosen, reason="Ada leads us")) == "/app/organizations/acme/members"
    [(details,)] = await run_sql(pool, "select details from audit_log where action = 'organization.owner.changed'")
    assert details["reason"] == "Ada leads us"
    await deliver(ports)
    notices = {email.to: " ".join(email.text.split()) for email in sent.emails if "new owner" in email.subject}
    assert notices.keys() == {"owner@example.com", "ada@example.com"}
    assert all("transferred to ada@example.com on" in text and "The reason: Ada leads us" in text for text in notices.values())
