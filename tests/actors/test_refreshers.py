"""Gauges are set at start and kept fresh; signing keys are those of the database."""

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest
import structlog
import trio

from actors.key_reader import key_reader
from actors.mailbox import Mailbox
from actors.metrics_refresher import metrics_refresher, refresh
from adapters.postgres.engine.pool import Pool
from adapters.worker_threads import TrioThreads
from core.accounts import email_queue_rules
from core.accounts.email_queue_rules import EmailKind
from core.authentication import signing_keys
from core.kernel.errors import StorageDown
from core.kernel.policy import Policy
from core.kernel.principals import SYSTEM
from core.kernel.values import Email
from ports import Ports
from tests.fakes.outside import FakeClock, FakeMetrics
from tests.support.builders import add_account
from tests.support.waiting import eventually


@dataclass
class Stats:
    total: int = 3
    idle: int = 2
    maximum: int = 10


class NoStorage:
    """A storage that is away."""

    def __getattr__(self, name: str) -> Any:
        raise StorageDown


async def test_gauges_are_set_at_start(ports: Ports, pool: Pool, metrics: FakeMetrics) -> None:
    await add_account(ports)
    await add_account(ports, "safe@example.com", mfa_enabled_at=ports.clock.now())
    await add_account(ports, "gone@example.com", mfa_enabled_at=ports.clock.now(), deactivated_at=ports.clock.now())
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.email_queue.add(email_queue_rules.new_email(EmailKind.PASSWORD_CHANGED, Email("ada@example.com"), ports.clock.now()))
        later = ports.clock.now() + timedelta(seconds=1)
        await tx.email_queue.add(email_queue_rules.new_email(EmailKind.PASSWORD_CHANGED, Email("ada@example.com"), later))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(metrics_refresher, ports, pool)
        await eventually(lambda: metrics.due is not None)
        nursery.cancel_scope.cancel()
    assert metrics.due == 1
    assert metrics.figures == (2, 0, 1)
    assert metrics.connections is not None
    assert metrics.connections[2] == pool.stats.maximum


async def test_without_a_database_the_other_gauges_are_still_set(ports: Ports, metrics: FakeMetrics) -> None:
    with structlog.testing.capture_logs() as log:
        await refresh(replace(ports, storage=NoStorage()), CountingPool())
    assert metrics.connections == (3, 2, 10)
    assert metrics.figures is None
    assert metrics.due is None
    assert [(entry["event"], entry["gauges"]) for entry in log] == [
        ("gauge_not_refreshed", "figures"),
        ("gauge_not_refreshed", "queue_depth"),
    ]


class CountingPool:
    """A pool that counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    @property
    def stats(self) -> Stats:
        self.asked += 1
        return Stats()


async def test_gauges_are_refreshed_every_30_seconds(autojump_clock: trio.testing.MockClock) -> None:
    policy, metrics, pool = Policy(), FakeMetrics(), CountingPool()
    unused: Any = None
    ports = Ports(
        storage=NoStorage(),
        passwords=unused,
        codes=unused,
        tokens=unused,
        certificates=unused,
        saml=unused,
        email_templates=unused,
        mail=unused,
        dns=unused,
        providers=unused,
        payments=unused,
        sender=unused,
        user_agents=unused,
        geoip=unused,
        clock=FakeClock(),
        threads=TrioThreads(),
        metrics=metrics,
        policy=policy,
    )
    with structlog.testing.capture_logs(), trio.move_on_after(95):
        await metrics_refresher(ports, pool)
    assert pool.asked == 4  # at 0, 30, 60 and 90 s


@pytest.mark.slow
async def test_keys_are_read_again_when_they_are_rotated(ports: Ports, clock: FakeClock) -> None:
    inbox = Mailbox()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(key_reader, ports, inbox)
        kid = await signing_keys.rotate(ports)
        inbox.post()
        await eventually(lambda: kid in {key["kid"] for key in ports.tokens.jwks()["keys"]})
        nursery.cancel_scope.cancel()
    assert len(ports.tokens.jwks()["keys"]) == 2
