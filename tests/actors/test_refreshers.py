"""The metrics refresher keeps gauges fresh, and the key reader keeps the signing keys as the database has them."""

from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
import structlog
import trio

from actors.key_reader import key_reader
from actors.mailbox import Mailbox
from actors.metrics_refresher import metrics_refresher, refresh
from adapters.postgres.engine.pool import Pool
from adapters.threads import TrioThreads
from core.accounts import platform
from core.accounts.model import email_queue
from core.accounts.model.email_queue import EmailKind
from core.accounts.model.platform import PlatformFigures
from core.authentication.tokens import signing_keys
from core.kernel.causes import SYSTEM
from core.kernel.errors import StorageDown
from core.kernel.policy import Policy
from core.kernel.values import Email
from ports import Ports
from tests.fakes.outside import FakeClock, FakeMetrics
from tests.support.builders import add_account, run_sql
from tests.support.waiting import eventually


@dataclass
class Stats:
    total: int = 3
    idle: int = 2
    maximum: int = 10


class NoStorage:
    """A storage that is down."""

    def __getattr__(self, name: str) -> Any:
        raise StorageDown


async def test_gauges_are_set_at_start(ports: Ports, pool: Pool, metrics: FakeMetrics) -> None:
    await run_sql(pool, "update users set passkey_count = 2 where id = %s", (await add_account(ports)).id)
    await add_account(ports, "safe@example.com", mfa_enabled_at=ports.clock.now())
    await add_account(ports, "gone@example.com", mfa_enabled_at=ports.clock.now(), deactivated_at=ports.clock.now())
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.email_queue.add(email_queue.new_email(EmailKind.PASSWORD_CHANGED, Email("ada@example.com"), ports.clock.now()))
        later = ports.clock.now() + timedelta(seconds=1)
        await tx.email_queue.add(email_queue.new_email(EmailKind.PASSWORD_CHANGED, Email("ada@example.com"), later))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(metrics_refresher, ports, pool, Mailbox())
        await eventually(lambda: metrics.mail_backlog is not None)  # set last
        nursery.cancel_scope.cancel()
    assert metrics.due == 1
    assert metrics.mail_backlog is not None
    assert metrics.mail_backlog[0] == 1
    assert metrics.figures == (2, 0, 1, 1, 1)
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
        ("gauge_not_refreshed", "mail_queue"),
        ("gauge_not_refreshed", "connections"),
    ]


class CountingPool:
    """A pool that counts how often its numbers are read."""

    def __init__(self) -> None:
        self.reads = 0

    @property
    def stats(self) -> Stats:
        self.reads += 1
        return Stats()


@pytest.fixture
def down_ports() -> Ports:
    """Ports without a database."""
    policy, metrics = Policy(), FakeMetrics()
    unused: Any = None
    return Ports(
        storage=NoStorage(),
        vault=unused,
        passwords=unused,
        codes=unused,
        passkeys=unused,
        tokens=unused,
        client_assertions=unused,
        pipeline_tokens=unused,
        dpop_proofs=unused,
        certificates=unused,
        saml=unused,
        saml_providers=unused,
        email_templates=unused,
        mail=unused,
        dns=unused,
        openid_providers=unused,
        payments=unused,
        sender=unused,
        client_keys=unused,
        client_documents=unused,
        issuer_keys=unused,
        user_agents=unused,
        geoip=unused,
        anonymizers=unused,
        clock=FakeClock(),
        threads=TrioThreads(),
        images=unused,
        installation=unused,
        metrics=metrics,
        policy=policy,
    )


async def test_gauges_are_refreshed_every_30_seconds(autojump_clock: trio.testing.MockClock, down_ports: Ports) -> None:
    pool = CountingPool()
    with structlog.testing.capture_logs(), trio.move_on_after(95):
        await metrics_refresher(down_ports, pool, Mailbox())
    assert pool.reads == 4  # at 0, 30, 60 and 90 s


async def test_messages_refresh_the_figures_at_most_once_a_second(
    autojump_clock: trio.testing.MockClock, down_ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    times: list[float] = []

    async def record_time(_: Ports) -> PlatformFigures:
        times.append(trio.current_time())
        return PlatformFigures(0, 0, 0, 0, 0)

    monkeypatch.setattr(platform, "get_figures", record_time)
    inbox, pool = Mailbox(), CountingPool()
    with structlog.testing.capture_logs(), trio.move_on_after(45):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(metrics_refresher, down_ports, pool, inbox)
            for _ in range(100):
                inbox.post()
                await trio.sleep(0.1)
    assert 10 <= len(times) <= 13
    assert all(later - sooner >= 0.99 for sooner, later in pairwise(times))
    assert pool.reads == 2, "the other gauges wait for the next round, at 30 s"


async def test_a_slow_count_is_followed_by_a_long_pause(
    autojump_clock: trio.testing.MockClock, down_ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    times: list[float] = []

    async def count_slowly(_: Ports) -> PlatformFigures:
        times.append(trio.current_time())
        await trio.sleep(0.2)
        return PlatformFigures(0, 0, 0, 0, 0)

    monkeypatch.setattr(platform, "get_figures", count_slowly)
    inbox = Mailbox()
    with structlog.testing.capture_logs(), trio.move_on_after(25):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(metrics_refresher, down_ports, CountingPool(), inbox)
            for _ in range(250):
                inbox.post()
                await trio.sleep(0.1)
    assert [round(later - sooner) for sooner, later in pairwise(times)] == [1, 10, 10]


@pytest.mark.slow
async def test_keys_are_read_again_when_they_are_rotated(ports: Ports, clock: FakeClock) -> None:
    inbox = Mailbox()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(key_reader, ports, inbox)
        kid = (await signing_keys.rotate(ports)).kid
        inbox.post()
        await eventually(lambda: kid in {key["kid"] for key in ports.tokens.jwks()["keys"]})
        nursery.cancel_scope.cancel()
    assert len(ports.tokens.jwks()["keys"]) == 2
