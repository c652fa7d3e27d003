"""Emails through the organizations' own mail servers.

These tests cover how the server is chosen, how organizations take turns, and slow servers (security E-1, L-1, P-7).
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest
import trio

import actors.mailer
from actors.mailer import PLATFORM_SLOTS, SLOTS_OF_ONE
from adapters.postgres.engine.pool import Pool
from core.accounts import email_changes, email_queue
from core.accounts.model import email_queue as email_queue_model
from core.accounts.model.email_queue import EmailKind, EmailResult, NoticedSecret, QueuedEmail, SecretNotice, new_email
from core.authentication import account_recovery
from core.federation import email_sign_in
from core.federation.sign_in import ApiTarget
from core.kernel.callers import Person, SetupPart
from core.kernel.causes import SYSTEM
from core.kernel.policy import Policy
from core.kernel.values import Email, digest, new_id
from core.mailing import preparation
from core.setup.model.links import SetupLink, SetupLinkKind
from ports import Ports
from tests.actors.helpers import capture_log, wait_until_idle
from tests.actors.mailing import all_finished, mailing
from tests.fakes.outside import FakeClock, FakeMailTransport
from tests.support.builders import (
    add_account,
    add_invitation,
    add_organization,
    add_platform_owner,
    deliver,
    fresh_sign_in,
    mail_server,
    run_sql,
    sign_in,
)
from tests.support.services import add_plan, add_service, add_subscription
from tests.support.waiting import PATIENCE, eventually

ADA = Email("ada@example.com")


@pytest.fixture(autouse=True)
def no_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the poll interval longer than any test, so that polling does not do a message's work."""
    monkeypatch.setattr(actors.mailer, "POLL", 10 * PATIENCE)


async def put_server(ports: Ports, org: UUID) -> None:
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.smtp.put(mail_server(org, password="secret"), ports.clock.now())


async def remove_server(ports: Ports, org: UUID) -> None:
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.smtp.remove(org)


async def add(ports: Ports, pool: Pool, slug: str, *, server: bool = True) -> UUID:
    org = await add_organization(pool, slug)
    if server:
        await put_server(ports, org)
    return org


async def queue(ports: Ports, *queued: QueuedEmail) -> None:
    async with ports.storage.transaction(by=SYSTEM) as tx:
        for mail in queued:
            await tx.email_queue.add(mail)


async def invite(ports: Ports, org: UUID, *addresses: str) -> None:
    """Queue invitation emails to these addresses."""
    for address in addresses:
        token = str(new_id())
        await add_invitation(ports, org, address, token_hash=digest(token))
        await queue(ports, new_email(EmailKind.INVITATION, Email(address), ports.clock.now(), token=token, org_id=org))


def people(slug: str, count: int) -> list[str]:
    return [f"person{number}@{slug}.example" for number in range(count)]


def gate(sent: FakeMailTransport, addresses: Sequence[str]) -> None:
    """Let emails to these addresses hang until the test opens their gates."""
    sent.gates.update({address: trio.Event() for address in addresses})


def count_attempts(sent: FakeMailTransport, addresses: Sequence[str]) -> int:
    """Return how many emails to these addresses were started."""
    return sum(sent.attempts[address] for address in addresses)


# Choosing the server


async def add_waiting_link(ports: Ports, org: UUID, secret: str) -> None:
    now = ports.clock.now()
    link = SetupLink(
        id=new_id(),
        org_id=org,
        name="Globex",
        kind=SetupLinkKind.MAILED,
        parts=(SetupPart.DOMAIN,),
        recipient=ADA,
        expires_at=now + timedelta(days=7),
        created_by=new_id(),
        created_at=now,
    )
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.setup_links.add(link, digest(secret))


async def test_invitations_use_the_mail_server_of_their_organization(ports: Ports, pool: Pool, sent: FakeMailTransport) -> None:
    acme, other_tenant, plain = (
        await add(ports, pool, "acme"),
        await add(ports, pool, "twin"),
        await add(ports, pool, "plain", server=False),
    )
    for org, slug in ((acme, "acme"), (other_tenant, "twin"), (plain, "plain")):
        await invite(ports, org, f"new@{slug}.example")
    await deliver(ports)
    through = {message.to: sent.servers[message.message_id] for message in sent.emails}
    assert through == {
        "new@acme.example": mail_server(acme, password="secret"),
        "new@twin.example": mail_server(other_tenant, password="secret"),
        "new@plain.example": None,
    }


@pytest.mark.parametrize("kind", [kind for kind in EmailKind if kind is not EmailKind.INVITATION])
async def test_emails_about_an_account_use_the_server_of_the_platform(
    ports: Ports, pool: Pool, sent: FakeMailTransport, kind: EmailKind
) -> None:
    acme = await add(ports, pool, "acme")
    ada = await add_account(ports, ADA, verified=kind is not EmailKind.VERIFY_EMAIL)
    match kind:
        case EmailKind.EMAIL_SIGN_IN:
            await email_sign_in.request(replace(ports, policy=Policy(email_sign_in=True)), SYSTEM, ADA, ApiTarget())
        case EmailKind.CONFIRM_EMAIL_CHANGE | EmailKind.EMAIL_CHANGE_REQUESTED:
            session = await sign_in(ports, ada)
            caller = Person(user_id=ada.id, email=ADA, session_id=session.session_id, sign_in=fresh_sign_in(ports))
            await email_changes.request(ports, caller, Email("new@example.com"))
            await run_sql(pool, "delete from mails where kind <> %s", kind)
        case EmailKind.SETUP_LINK:
            await add_waiting_link(ports, acme, "secret")
            await queue(ports, new_email(kind, ADA, ports.clock.now(), token="secret", org_id=acme))
        case EmailKind.RECOVERY_LINK:
            owner = await add_platform_owner(ports)
            session = await sign_in(ports, owner)
            caller = Person(user_id=owner.id, email=owner.email, session_id=session.session_id, sign_in=fresh_sign_in(ports))
            await account_recovery.issue_by_platform(ports, caller, ada.id, "Lost phone")
        case EmailKind.ORGANIZATION_WAITING:
            await run_sql(pool, "update organizations set status = 'pending'")
            await queue(ports, new_email(kind, ADA, ports.clock.now()))
        case EmailKind.TRIAL_ENDS | EmailKind.PAYMENT_ACTION:
            now, shop = ports.clock.now(), await add_service(pool, acme)
            subscription = await add_subscription(ports, pool, shop, ada.id, await add_plan(pool, shop), ends=now)
            await queue(ports, new_email(kind, ADA, now, org_id=acme, subscription_id=subscription))
        case (
            EmailKind.PERSONAL_TOKEN_CREATED
            | EmailKind.SECRET_EXPIRES
            | EmailKind.SECRET_ENDED
            | EmailKind.PROGRAM_ENDED
            | EmailKind.PROGRAMS_END
        ):
            notice = SecretNotice(
                kind=NoticedSecret.PERSONAL_TOKEN,
                name="Export",
                label="gatehouse_pat_k2v7qa",
                holder=None,
                organization=None,
                expires_at=ports.clock.now(),
                path="/app/account/personal-tokens",
            )
            await queue(ports, new_email(kind, ADA, ports.clock.now(), secret=notice))
        case _:
            await queue(ports, new_email(kind, ADA, ports.clock.now()))
    await run_sql(pool, "update mails set org_id = %s", acme)
    await deliver(ports)
    [message] = sent.emails
    assert sent.servers == {message.message_id: None}


async def test_each_attempt_uses_the_server_that_is_configured_at_that_time(
    ports: Ports, pool: Pool, sent: FakeMailTransport, clock: FakeClock
) -> None:
    acme = await add(ports, pool, "acme")
    await invite(ports, acme, ADA)
    uses_own_server = []
    for change in (None, remove_server, put_server, remove_server):
        if change is not None:
            await change(ports, acme)
        [mail] = await email_queue.claim_due(ports, 1)
        prepared = await preparation.prepare(ports, mail)
        assert not isinstance(prepared, EmailResult)
        uses_own_server.append(prepared[0].server is not None)
        due_at = await email_queue.record_failure(ports, mail, "refused", 0.5)
        assert due_at is not None
        clock.advance(due_at - clock.now())
    assert uses_own_server == [True, False, True, False]
    await deliver(ports)
    [message] = sent.emails
    assert sent.servers == {message.message_id: None}


async def test_an_unreadable_server_password_does_not_fall_back_to_another_server(
    ports: Ports, pool: Pool, sent: FakeMailTransport
) -> None:
    await invite(ports, await add(ports, pool, "acme"), ADA)
    await run_sql(pool, "update smtp_settings set password = 'x'")
    async with mailing(ports) as [inbox]:
        await wait_until_idle(inbox)
    assert sent.emails == []
    [(attempts, failure)] = await run_sql(pool, "select attempts, last_failure from mails")
    assert (attempts, failure) == (1, "it could not be prepared: SealBroken")


async def test_a_refusal_by_an_own_server_is_retried(ports: Ports, pool: Pool, sent: FakeMailTransport, clock: FakeClock) -> None:
    await invite(ports, await add(ports, pool, "acme"), ADA)
    sent.refusal = "the organization's server: the host is at an address that is not allowed"
    async with mailing(ports) as [inbox]:

        async def failed() -> bool:
            return await run_sql(pool, "select attempts, last_failure from mails") == [(1, sent.refusal)]

        await eventually(failed)
        sent.refusal = None
        [(due_at,)] = await run_sql(pool, "select due_at from mails")
        clock.advance(due_at - clock.now())
        inbox.post()
        await sent.arrived(1)


# The organizations' order


async def test_a_slow_server_delays_only_its_own_organization(ports: Ports, pool: Pool, sent: FakeMailTransport) -> None:
    slow, others, platform = people("acme", 6), people("twin", 3), people("plain", 3)
    gate(sent, slow)
    await invite(ports, await add(ports, pool, "acme"), *slow)
    await invite(ports, await add(ports, pool, "twin"), *others)
    await invite(ports, await add(ports, pool, "plain", server=False), *platform)
    await queue(ports, *(new_email(EmailKind.PASSWORD_CHANGED, ADA, ports.clock.now()) for _ in range(3)))
    async with mailing(ports) as [inbox]:
        await sent.arrived(9)
        await wait_until_idle(inbox)
        assert count_attempts(sent, slow) == SLOTS_OF_ONE
        for event in sent.gates.values():
            event.set()
        await sent.arrived(15)


async def test_slow_servers_leave_slots_for_emails_of_the_platform(
    ports: Ports, pool: Pool, sent: FakeMailTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actors.mailer, "OWN_SERVER_SLOTS", 4)
    slow = [address for slug in ("acme", "twin", "third", "fourth", "fifth") for address in people(slug, 2)]
    gate(sent, slow)
    for slug in ("acme", "twin", "third", "fourth", "fifth"):
        await invite(ports, await add(ports, pool, slug), *people(slug, 2))
    await invite(ports, await add(ports, pool, "plain", server=False), "new@plain.example")
    await queue(ports, *(new_email(EmailKind.PASSWORD_CHANGED, ADA, ports.clock.now()) for _ in range(10)))
    async with mailing(ports) as [inbox]:
        await sent.arrived(11)
        await wait_until_idle(inbox)
        assert count_attempts(sent, slow) == 4
        for event in sent.gates.values():
            event.set()
        await sent.arrived(21)


async def test_a_slow_server_of_the_platform_leaves_slots_for_the_servers_of_organizations(
    ports: Ports, pool: Pool, sent: FakeMailTransport
) -> None:
    gate(sent, [ADA, "hidden@acme.example"])
    notices = [new_email(EmailKind.PASSWORD_CHANGED, ADA, ports.clock.now()) for _ in range(PLATFORM_SLOTS + 2)]
    await queue(ports, *notices)
    acme = await add(ports, pool, "acme")
    await invite(ports, acme, "hidden@acme.example")
    await run_sql(pool, "update invitations set inviter_token_hash = 'from before it had a server'")
    await invite(ports, await add(ports, pool, "twin"), *people("twin", 3))
    await invite(ports, acme, *people("acme", 3))
    async with mailing(ports) as [inbox]:
        assert {message.to.domain for message in await sent.arrived(6)} == {"twin.example", "acme.example"}
        await wait_until_idle(inbox)
        assert count_attempts(sent, [ADA, "hidden@acme.example"]) == PLATFORM_SLOTS
        for event in sent.gates.values():
            event.set()
        await sent.arrived(6 + PLATFORM_SLOTS + 3)


async def test_organizations_take_turns_despite_a_long_backlog_of_one(
    ports: Ports, pool: Pool, sent: FakeMailTransport, clock: FakeClock
) -> None:
    for slug, count in (("acme", 5), ("twin", 2), ("third", 1)):
        await invite(ports, await add(ports, pool, slug), *people(slug, count))
        clock.advance(email_queue_model.LEASE)
    async with mailing(ports, slots=1):
        emails = await sent.arrived(8)
    order = [message.to.domain.removesuffix(".example") for message in emails]
    assert order == ["acme", "twin", "third", "acme", "twin", "acme", "acme", "acme"]


async def test_a_new_organization_comes_before_second_emails_of_slow_ones(
    ports: Ports, pool: Pool, sent: FakeMailTransport, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actors.mailer, "OWN_SERVER_SLOTS", 4)
    slugs = ["acme", "twin", "third", "fourth"]
    backlog = {slug: people(slug, 3) for slug in slugs}
    gate(sent, [address for addresses in backlog.values() for address in addresses])
    for slug, addresses in backlog.items():
        await invite(ports, await add(ports, pool, slug), *addresses)
    async with mailing(ports) as [inbox]:
        await eventually(
            lambda: all(count_attempts(sent, addresses) == 1 for addresses in backlog.values()), "each organization has had one turn"
        )
        clock.advance(email_queue_model.LEASE / 4)
        await invite(ports, await add(ports, pool, "late"), "new@late.example")
        inbox.post()
        await wait_until_idle(inbox)
        [first] = [address for address in backlog["acme"] if sent.attempts[address]]
        sent.gates[first].set()
        assert [message.to for message in await sent.arrived(2)] == [first, "new@late.example"]
        for event in sent.gates.values():
            event.set()
        await sent.arrived(13)


async def test_two_slow_servers_do_not_stop_the_servers_of_other_organizations(ports: Ports, pool: Pool, sent: FakeMailTransport) -> None:
    slow = [*people("acme", 3), *people("twin", 3)]
    gate(sent, slow)
    for slug in ("acme", "twin"):
        await invite(ports, await add(ports, pool, slug), *people(slug, 3))
    await invite(ports, await add(ports, pool, "third"), "new@third.example")
    async with mailing(ports):
        [email] = await sent.arrived(1)
        assert email.to == "new@third.example"
        for event in sent.gates.values():
            event.set()
        await sent.arrived(7)


async def test_many_invitations_of_one_organization_do_not_delay_another(
    ports: Ports, pool: Pool, sent: FakeMailTransport, clock: FakeClock
) -> None:
    """The platform's server sends both organizations' mails."""
    for slug, count in (("acme", 9), ("twin", 2)):
        await invite(ports, await add(ports, pool, slug, server=False), *people(slug, count))
        clock.advance(timedelta(seconds=1))
    async with mailing(ports, slots=1):
        emails = await sent.arrived(11)
    order = [message.to.domain.removesuffix(".example") for message in emails]
    assert order[:4] == ["acme", "twin", "acme", "twin"]


@pytest.mark.parametrize("is_dropped", [False, True])
@pytest.mark.parametrize("cause", ["accounts", "organization"])
async def test_a_flood_delays_other_senders_only_by_its_turns(
    ports: Ports, pool: Pool, sent: FakeMailTransport, clock: FakeClock, cause: str, is_dropped: bool
) -> None:
    """An organization has older emails than the flood. All other organizations and accounts have newer emails."""
    acme, twin, third = [await add(ports, pool, slug, server=False) for slug in ("acme", "twin", "third")]
    own = await add(ports, pool, "own")
    flood = [Email(address) for address in people("flood", 30)]
    for address in [] if is_dropped else flood:
        await add_account(ports, address, None)
    await invite(ports, acme, *people("acme", 4))
    clock.advance(timedelta(seconds=1))
    kind, org = (EmailKind.RESET_PASSWORD, None) if cause == "accounts" else (EmailKind.MEMBER_RESET, third)
    await queue(ports, *(new_email(kind, address, clock.now(), org_id=org) for address in flood))
    clock.advance(timedelta(seconds=1))
    await invite(ports, twin, *people("twin", 3))
    await invite(ports, own, *people("own", 3))
    if cause == "organization":
        await queue(ports, *(new_email(EmailKind.PASSWORD_CHANGED, ADA, clock.now()) for _ in range(3)))
    with capture_log() as log:
        async with mailing(ports, slots=1):
            await all_finished(pool)
    domains = {str(mail_id): address.split("@")[1] for mail_id, address in await run_sql(pool, "select id, address from mails")}
    order = [domains[entry["job_id"]] for entry in log]
    honest = [place for place, domain in enumerate(order) if domain != "flood.example"]
    assert len(order) - len(flood) == len(honest)
    assert max(honest) <= 2 * len(honest), order
