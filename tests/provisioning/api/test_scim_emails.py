"""The emails that SCIM sends, and their limits (security E-5)."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pytest
from quart_trio import QuartTrio

from core.accounts import email_queue
from core.mailing import preparation
from tests.fakes.outside import FakeClock, FakeMailTransport
from tests.provisioning.api.users import load_accounts, set_password
from tests.support.builders import deliver, link, run_sql
from tests.support.direct import change_ports
from tests.support.scim import GRACE, Directory, directory_of
from tests.support.services import add_service
from tests.support.tenants import Tenant


async def test_the_welcome_email_leads_to_a_password(acme: Tenant, directory: Directory, sent: FakeMailTransport) -> None:
    await directory.create_user()
    await deliver(acme.ports)
    [message] = sent.emails
    assert (message.to, message.subject) == (GRACE, "Your new account - Acme")
    token = link(message)
    answer = await acme.api.post("/api/auth/reset-password", {"token": token, "new_password": "another good password"})
    assert answer.status == 200, answer.text
    assert (await acme.api.login(GRACE, "another good password")).status == 200


async def test_the_link_of_a_welcome_email_works_for_seven_days(
    acme: Tenant, directory: Directory, sent: FakeMailTransport, clock: FakeClock
) -> None:
    for email in (GRACE, "late@acme.example"):
        await directory.create_user(email)
    await deliver(acme.ports)
    in_time, too_late = (link(message) for message in sorted(sent.emails, key=lambda message: message.to != GRACE))
    clock.advance(timedelta(days=7) - timedelta(seconds=1))
    body = {"new_password": "another good password"}
    assert (await acme.api.post("/api/auth/reset-password", {"token": in_time, **body})).status == 200
    clock.advance(timedelta(seconds=1))
    assert (await acme.api.post("/api/auth/reset-password", {"token": too_late, **body})).status == 400


async def test_a_welcome_email_names_the_application_if_there_is_one(acme: Tenant, directory: Directory, sent: FakeMailTransport) -> None:
    text = "Acme has created\na Gatehouse account for you: {}.\n{}Set a password:"
    for email, slug, application in (
        ("first@acme.example", None, ""),
        ("second@acme.example", "shop", "You can sign in to Shop with it.\n"),
        ("third@acme.example", "portal", ""),
    ):
        if slug is not None:
            await add_service(acme.pool, acme.org, slug)
        await directory.create_user(email)
        await deliver(acme.ports)
        assert text.format(email, application) in sent.emails[-1].text, email


@pytest.mark.parametrize(
    ("launch_url", "target"),
    [
        (None, "/app/sign-in?next=%2Fapp%2Faccount%2Forganizations"),
        ("https://shop.example.com/start", "https://shop.example.com/start"),
    ],
)
async def test_a_welcomed_user_chooses_a_password_and_continues(
    acme: Tenant, directory: Directory, sent: FakeMailTransport, launch_url: str | None, target: str
) -> None:
    service = await add_service(acme.pool, acme.org)
    await run_sql(acme.pool, "update services set launch_url = %s where id = %s", launch_url, service)
    await directory.create_user()
    await deliver(acme.ports)
    token = link(sent.emails[-1])
    page = await acme.api.get(f"/auth/reset-password?token={token}")
    body = f"token={token}&new_password=another+good+password".encode()
    done = await acme.api.call("POST", "/auth/reset-password", raw=body, headers={"Content-Type": "application/x-www-form-urlencoded"})
    assert (page.status, "<h1>Choose a password</h1>" in page.text) == (200, True)
    assert (done.status, "<h1>Password set</h1>" in done.text, f'href="{target}"' in done.text) == (200, True, True), done.text
    assert "signed out" not in page.text + done.text
    assert (await acme.api.login(GRACE, "another good password")).status == 200


@pytest.mark.parametrize("first", ["the mailer", "the directory"])
async def test_the_welcome_email_goes_to_the_present_address(
    acme: Tenant, directory: Directory, sent: FakeMailTransport, first: str
) -> None:
    user = await directory.create_user("wrong@acme.example")
    if first == "the mailer":
        await deliver(acme.ports)
    for email in ("next@acme.example", "wrong@acme.example", GRACE):  # there and back again
        assert (await directory.put(user["id"], userName=email)).status == 200
    before = len(sent.emails)
    await deliver(acme.ports)
    [welcome] = [message for message in sent.emails[before:] if message.subject == "Your new account - Acme"]
    assert welcome.to == GRACE
    answer = await acme.api.post("/api/auth/reset-password", {"token": link(welcome), "new_password": "another good password"})
    assert answer.status == 200, answer.text
    assert (await acme.api.login(GRACE, "another good password")).status == 200


async def test_a_link_that_waits_for_the_mail_server_is_withdrawn_with_its_address(
    acme: Tenant, directory: Directory, sent: FakeMailTransport
) -> None:
    user = await directory.create_user("wrong@acme.example")
    [mail] = await email_queue.claim_due(acme.ports, 10)
    assert isinstance(await preparation.prepare(acme.ports, mail), tuple)
    await email_queue.record_failure(acme.ports, mail, "it is away", 0)
    await directory.put(user["id"], userName=GRACE)
    await run_sql(acme.pool, "update mails set due_at = created_at")
    await deliver(acme.ports)
    assert {(message.to, message.subject) for message in sent.emails} == {
        (GRACE, "Your new account - Acme"),
        ("wrong@acme.example", "Your email address was changed - Acme"),
    }


async def test_the_welcome_email_goes_to_the_new_address_of_an_inactive_user_on_activation(
    acme: Tenant, directory: Directory, sent: FakeMailTransport
) -> None:
    user = await directory.create_user("wrong@acme.example", active=False)
    await directory.put(user["id"], userName=GRACE)
    assert await run_sql(acme.pool, "select kind from mails where kind = 'welcome'") == []
    await directory.activate(user["id"])
    await deliver(acme.ports)
    assert [message.to for message in sent.emails if message.subject.startswith("Your new account")] == [GRACE]


async def test_a_user_with_a_password_is_not_welcomed_again(acme: Tenant, directory: Directory) -> None:
    user = await directory.create_user()
    await set_password(acme, user["id"])
    await run_sql(
        acme.pool,
        "insert into domains (org_id, domain, challenge, verified_at, created_at) values (%s, 'acme.example', 'x', now(), now())",
        acme.org,
    )
    assert (await directory.put(user["id"], userName="hopper@acme.example")).status == 200
    assert await run_sql(acme.pool, "select address from mails where kind = 'welcome'") == [(GRACE,)]


async def test_the_limit_of_welcome_emails_does_not_block_password_reset_emails(
    acme: Tenant, directory: Directory, sent: FakeMailTransport
) -> None:
    for _ in range(7):
        user = await directory.create_user()
        await deliver(acme.ports)
        await directory.delete(user["id"])
    assert len(sent.emails) == 5
    await directory.create_user()
    await acme.api.post("/api/auth/forgot-password", {"email": GRACE})
    await deliver(acme.ports)
    assert [message.subject for message in sent.emails[5:]] == ["Set a new password - Gatehouse"]


async def test_an_address_gets_at_most_five_change_notices_per_hour(
    acme: Tenant, directory: Directory, sent: FakeMailTransport, clock: FakeClock
) -> None:
    user = await directory.create_user()
    await deliver(acme.ports)
    for _ in range(7):
        for email in ("hopper@acme.example", GRACE):
            assert (await directory.put(user["id"], userName=email)).status == 200
            await deliver(acme.ports)
    notices = Counter(message.to for message in sent.emails if message.subject.startswith("Your email address"))
    assert notices == {GRACE: 5, "hopper@acme.example": 5}
    before = len(sent.emails)
    clock.advance(timedelta(hours=1))
    await directory.put(user["id"], userName="hopper@acme.example")
    await deliver(acme.ports)
    assert sorted(message.to for message in sent.emails[before:]) == [GRACE, "hopper@acme.example"]


async def test_emails_beyond_the_daily_limit_of_a_directory_are_sent_later(
    app: QuartTrio, acme: Tenant, other_tenant: Tenant, directory: Directory, sent: FakeMailTransport, clock: FakeClock
) -> None:
    change_ports(app, policy=replace(acme.ports.policy, invitations_per_day=3))
    other = await directory_of(other_tenant)
    user_ids = [(await directory.create_user(f"p{number}@acme.example"))["id"] for number in range(5)]
    await directory.put(user_ids[0], userName="p9@acme.example")
    await other.create_user("q@twin.example")

    async def delivered() -> list[str]:
        before = len(sent.emails)
        await deliver(acme.ports)
        return sorted(message.to.partition("@")[0] for message in sent.emails[before:])

    assert await delivered() == ["p1", "p2", "q"]
    clock.advance(timedelta(hours=23))
    assert await delivered() == []
    clock.advance(timedelta(hours=1, minutes=5))
    assert await delivered() == ["p3", "p4", "p9"]
    clock.advance(timedelta(hours=24, minutes=5))
    assert await delivered() == ["p0"]
    for user_id in user_ids[:3]:
        await directory.delete(user_id)
    for number in range(3):
        await directory.create_user(f"r{number}@acme.example")
    assert await delivered() == ["r0", "r1"]


async def test_a_user_created_inactive_is_welcomed_on_activation(acme: Tenant, directory: Directory) -> None:
    user = await directory.create_user(active=False)
    assert user["active"] is False
    assert [(row[4], row[5]) for row in await load_accounts(acme)] == [(True, None)]
    assert await run_sql(acme.pool, "select kind from mails") == []
    await directory.activate(user["id"])
    assert await run_sql(acme.pool, "select kind from mails") == [("welcome",)]


async def test_no_second_welcome_email_is_queued_while_one_waits(acme: Tenant, directory: Directory, sent: FakeMailTransport) -> None:
    user = await directory.create_user()
    for _ in range(3):
        await directory.deactivate(user["id"])
        await directory.activate(user["id"])
    assert await run_sql(acme.pool, "select kind from mails") == [("welcome",)]
    await deliver(acme.ports)
    assert [message.to for message in sent.emails] == [GRACE]
    await directory.deactivate(user["id"])
    await directory.activate(user["id"])
    await deliver(acme.ports)
    assert [message.to for message in sent.emails] == [GRACE, GRACE], "the link of the first one may have expired"
