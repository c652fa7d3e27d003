"""Work reaches its process's actors directly after the commit, and by polling if every signal is lost.

No test here runs a listener, so no NOTIFY is received.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, cast
from uuid import UUID

import pytest
import trio

import actors.dispatching
import actors.key_reader
import actors.mailer
import actors.metrics_refresher
import actors.siem_forwarder
from actors import sweep_jobs
from actors.dispatching import webhook_dispatcher
from actors.key_reader import key_reader
from actors.mailbox import Mailboxes
from actors.mailer import mailer
from actors.metrics_refresher import metrics_refresher
from actors.sweep_jobs import sweeper
from adapters import prometheus
from adapters.clock import SystemClock
from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.accounts import events
from core.accounts.model.email_queue import EmailKind, new_email
from core.applications import api_keys, service_users
from core.authentication.tokens import signing_keys
from core.billing.model.provider_facts import SubscriptionFacts
from core.kernel.causes import SYSTEM
from core.kernel.roles import MEMBER, Permission
from core.kernel.values import Email, digest, new_id
from core.tenancy.model.invitations import Invitation, InvitationStatus
from entrypoints import adapters_of_settings, wiring
from entrypoints.settings import Settings
from ports import Ports
from ports.signals import NoSignals, Signal, Signals
from tests.actors.helpers import wait_until_idle
from tests.fakes.outside import FakeMailTransport, FakeMetrics
from tests.fakes.receiver import Receiver, receiving
from tests.support.builders import add_account, add_organization, make_vault, run_sql, with_loopback_sender
from tests.support.services import add_api_key, add_service
from tests.support.siem import configure, make_sink
from tests.support.waiting import PATIENCE, eventually
from tests.support.webhooks import add_webhook, happen

if TYPE_CHECKING:
    from ports.outside import Payments

FOREVER = 100 * PATIENCE
SOON = timedelta(seconds=0.3)


@dataclass
class RecordingPayments:
    """A payment provider that knows no subscription, and records the requested ids."""

    is_on: bool = True
    requested: list[str] = field(default_factory=list)

    async def subscription(self, id_: str) -> None:
        self.requested.append(id_)


@dataclass(frozen=True)
class World:
    """A process with all actors but the listener, and the outside world that it can reach."""

    ports: Ports
    pool: Pool
    receiver: Receiver
    payments: RecordingPayments
    metrics: FakeMetrics
    sent: FakeMailTransport
    org: UUID

    async def expired(self) -> list[tuple[Any, ...]]:
        return await run_sql(self.pool, "select expires_at, ended_at from invitations where status = 'expired'")


def actors_of(ports: Ports, pool: Pool, mailboxes: Mailboxes, poll: float) -> Mapping[str, Callable[[], Awaitable[NoReturn]]]:
    """Return the actors that look for work every `poll` seconds without a message."""
    holder = new_id()
    return {
        "mailer": partial(mailer, ports, mailboxes.mailer),
        "key_reader": partial(key_reader, ports, mailboxes.key_reader),
        "webhook_dispatcher": partial(webhook_dispatcher, ports, mailboxes.webhook_dispatcher),
        "metrics_refresher": partial(metrics_refresher, ports, pool, mailboxes.metrics_refresher),
        "invitation_sweeper": partial(
            sweeper, ports, replace(sweep_jobs.INVITATION_EXPIRY, period=poll), mailboxes.invitation_sweeper, holder
        ),
        "subscription_sweeper": partial(
            sweeper, ports, replace(sweep_jobs.SUBSCRIPTION_EXPIRY, period=poll), mailboxes.subscription_sweeper, holder
        ),
        "billing_reconciler": partial(
            sweeper, ports, replace(sweep_jobs.SUBSCRIPTION_RECONCILIATION, period=poll), mailboxes.billing_reconciler, holder
        ),
    }


async def invite(world: World, expires_at: datetime) -> None:
    email = Email(f"{new_id().hex}@example.com")
    invitation = Invitation(
        id=new_id(),
        org_id=world.org,
        email=email,
        role=MEMBER,
        invited_by=new_id(),
        status=InvitationStatus.PENDING,
        token_hash=digest(email),
        expires_at=expires_at,
        created_at=expires_at - timedelta(days=7),
    )
    async with world.ports.storage.transaction(by=SYSTEM) as tx:
        await tx.invitations.add(invitation)


async def add_doubtful_subscription(world: World, subscription_id: str, check_at: datetime) -> None:
    async with world.ports.storage.transaction(by=SYSTEM) as tx:
        await tx.billing.lock_facts(subscription_id, check_at)
        await tx.billing.save_facts(SubscriptionFacts(id=subscription_id), check_at, check_at=check_at)


async def send_mail(world: World) -> None:
    async with world.ports.storage.transaction(by=SYSTEM) as tx:
        await tx.email_queue.add(new_email(EmailKind.PASSWORD_CHANGED, Email("user@example.com"), world.ports.clock.now()))


class Work(NamedTuple):
    """A kind of work: a use case that creates it, and a check whether it was done."""

    create: Callable[[World], Awaitable[object]]
    is_done: Callable[[World], Awaitable[object]]


async def is_delivered(world: World) -> object:
    return world.receiver.got


async def is_checked(subscription_id: str, world: World) -> object:
    return subscription_id in world.payments.requested


async def is_counted(world: World) -> object:
    return world.metrics.figures is not None and world.metrics.figures[0] == 1


async def is_sent(world: World) -> object:
    return world.sent.emails


async def is_published(world: World) -> object:
    return len(world.ports.tokens.jwks()["keys"]) == 2


WORK: Mapping[str, Work] = {
    "a delivery": Work(lambda world: happen(world.ports, world.org), is_delivered),
    "an invitation that expires soon": Work(lambda world: invite(world, datetime.now(UTC) + SOON), World.expired),
    "a doubtful subscription": Work(
        lambda world: add_doubtful_subscription(world, "sub_now", datetime.now(UTC)), partial(is_checked, "sub_now")
    ),
    "a subscription that is in doubt soon": Work(
        lambda world: add_doubtful_subscription(world, "sub_soon", datetime.now(UTC) + SOON), partial(is_checked, "sub_soon")
    ),
    "a gauge": Work(lambda world: add_account(world.ports), is_counted),
    "an email": Work(send_mail, is_sent),
    "a new signing key": Work(lambda world: signing_keys.rotate(world.ports), is_published),
}


async def wait_for_first_look(metrics: FakeMetrics, mailboxes: Mailboxes) -> None:
    """Wait until every actor has looked for work once. Later work is only done after a message or a poll."""
    await eventually(lambda: metrics.due is not None, "the metrics refresher has set all gauges")
    sweepers = (mailboxes.invitation_sweeper, mailboxes.subscription_sweeper, mailboxes.billing_reconciler)
    inboxes = (mailboxes.mailer, mailboxes.key_reader, mailboxes.webhook_dispatcher, *(inbox._changed for inbox in sweepers))
    for inbox in inboxes:
        await wait_until_idle(inbox)


async def undone_work(
    ports: Ports, pool: Pool, metrics: FakeMetrics, sent: FakeMailTransport, signals: Signals, mailboxes: Mailboxes, poll: float
) -> list[str]:
    """Run the actors, create work of every kind, and return the kinds that were not done."""
    clock, payments = SystemClock(), RecordingPayments()
    storage = Postgres(pool, make_vault(), clock, signals=signals)
    ports = with_loopback_sender(replace(ports, clock=clock, storage=storage, payments=cast("Payments", payments)))
    undone = set(WORK)
    async with receiving() as receiver:
        world = World(ports, pool, receiver, payments, metrics, sent, await add_organization(pool, "acme"))
        await add_webhook(ports, world.org, receiver.url("/in"))
        async with trio.open_nursery() as nursery:
            for name, actor in actors_of(ports, pool, mailboxes, poll).items():
                nursery.start_soon(actor, name=name)
            await wait_for_first_look(metrics, mailboxes)
            with trio.move_on_after(PATIENCE):
                for work in WORK.values():
                    await work.create(world)
                while undone:
                    for name in list(undone):
                        if await WORK[name].is_done(world):
                            undone.remove(name)
                    await trio.sleep(0.01)
            nursery.cancel_scope.cancel()
        for expires_at, ended_at in await world.expired():
            assert ended_at >= expires_at
    return sorted(undone)


def set_polls(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    for module in (actors.dispatching, actors.mailer, actors.siem_forwarder, actors.key_reader):
        monkeypatch.setattr(module, "POLL", seconds)
    monkeypatch.setattr(actors.metrics_refresher, "PERIOD", seconds)


@pytest.mark.slow
async def test_without_notify_all_work_is_done_before_the_next_poll(
    ports: Ports, pool: Pool, metrics: FakeMetrics, sent: FakeMailTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_polls(monkeypatch, FOREVER)
    mailboxes = Mailboxes()
    assert await undone_work(ports, pool, metrics, sent, mailboxes, mailboxes, FOREVER) == []


@pytest.mark.slow
async def test_with_the_channel_cut_polling_finds_all_work(
    ports: Ports, pool: Pool, metrics: FakeMetrics, sent: FakeMailTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_polls(monkeypatch, 0.1)
    monkeypatch.setattr(actors.metrics_refresher, "SHORTEST_PAUSE", 0.05)
    assert await undone_work(ports, pool, metrics, sent, NoSignals(), Mailboxes(), 0.1) == []


async def test_a_sweeper_wakes_at_the_next_expiry_in_the_database(
    ports: Ports, pool: Pool, metrics: FakeMetrics, sent: FakeMailTransport
) -> None:
    """No signal reports this invitation, because it is older than the process."""
    clock = SystemClock()
    ports = replace(ports, clock=clock, storage=Postgres(pool, make_vault(), clock))
    mailboxes = Mailboxes()
    async with receiving() as receiver:
        world = World(ports, pool, receiver, RecordingPayments(), metrics, sent, await add_organization(pool, "acme"))
        await invite(world, datetime.now(UTC) + SOON)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(actors_of(ports, pool, mailboxes, FOREVER)["invitation_sweeper"])
            await eventually(world.expired, "the invitation has expired")
            nursery.cancel_scope.cancel()


async def test_the_wiring_sends_signals_of_storage_to_the_actors_mailboxes(
    conninfo: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prometheus, "PrometheusMetrics", FakeMetrics)
    settings = Settings(data_dir=tmp_path)
    adapters_of_settings.encryption_keys(settings)
    async with wiring.wire(settings, "http://localhost", conninfo) as wired:
        async with wired.ports.storage.transaction(by=SYSTEM) as tx:
            await tx.email_queue.add(new_email(EmailKind.PASSWORD_CHANGED, Email("user@example.com"), wired.ports.clock.now()))
        assert await wired.mailboxes.mailer.wait(PATIENCE)


@dataclass
class RecordingSignals(NoSignals):
    """Signals that are recorded."""

    sent: list[Signal] = field(default_factory=list)

    def send(self, signal: Signal, at: datetime | None = None) -> None:
        self.sent.append(signal)


async def test_a_user_that_an_api_key_creates_is_a_message_to_an_actor(ports: Ports, pool: Pool) -> None:
    """The internal event UserSignupSuccess. A user who exists already, and a rollback, send nothing."""
    signals, mailboxes = RecordingSignals(), Mailboxes()
    ports = replace(ports, storage=Postgres(pool, make_vault(), ports.clock, signals=signals))
    service = await add_service(pool, await add_organization(pool, "acme"))
    text = await add_api_key(pool, service)
    key = await api_keys.authenticate(ports, SYSTEM, text, Permission.WRITE_USERS)
    for _ in range(2):
        await service_users.find_or_create(ports, key, Email("new@example.com"))
    assert signals.sent.count(Signal.USER_SIGNED_UP) == 1
    with pytest.raises(ZeroDivisionError):  # noqa: PT012 (the statement before the error matters)
        async with ports.storage.transaction(by=SYSTEM) as tx:
            tx.record(events.signed_up(new_id()))
            raise ZeroDivisionError
    assert signals.sent.count(Signal.USER_SIGNED_UP) == 1
    mailboxes.send(Signal.USER_SIGNED_UP)
    assert await mailboxes.metrics_refresher.wait(PATIENCE)


async def test_signals_follow_the_commit_and_never_a_rollback(ports: Ports, pool: Pool) -> None:
    signals = RecordingSignals()
    ports = replace(ports, storage=Postgres(pool, make_vault(), ports.clock, signals=signals))
    org = await add_organization(pool, "acme")
    mail = new_email(EmailKind.PASSWORD_CHANGED, Email("user@example.com"), ports.clock.now())

    await happen(ports, org)
    assert signals.sent == [], "no webhook exists, so no delivery is due"

    await add_webhook(ports, org, "https://hooks.example.com")
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.email_queue.add(mail)
        assert signals.sent == [], "the transaction is not committed"
    await happen(ports, org)
    assert signals.sent == [Signal.EMAIL_DUE, Signal.DELIVERIES_DUE]

    with pytest.raises(ZeroDivisionError):  # noqa: PT012 (the statement before the error matters)
        async with ports.storage.transaction(by=SYSTEM) as tx:
            await tx.email_queue.add(replace(mail, id=new_id()))
            raise ZeroDivisionError
    assert len(signals.sent) == 2
    await add_account(ports)
    assert signals.sent[2:] == [Signal.FIGURES_CHANGED]

    signals.sent.clear()
    for _ in range(2):
        async with ports.storage.transaction(by=SYSTEM) as tx:
            welcome = new_email(EmailKind.WELCOME, Email("user@example.com"), ports.clock.now(), org_id=org)
            await tx.email_queue.add_within(welcome, 1)
    assert signals.sent == [Signal.EMAIL_DUE], "the second email is due tomorrow"

    await configure(ports, make_sink(org, "https://siem.example.com/collect"))
    signals.sent.clear()
    await happen(ports, org)
    assert signals.sent == [Signal.DELIVERIES_DUE, Signal.SIEM_ENTRIES_DUE]
