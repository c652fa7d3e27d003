"""Invitations expire once, in bounded batches, with any number of processes (security N-9)."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
import structlog
import trio

from actors.mailbox import TimedMailbox
from actors.sweep_jobs import INVITATION_EXPIRY, sweeper
from adapters.postgres.engine.pool import Pool
from core.kernel.causes import SYSTEM
from core.kernel.roles import MEMBER
from core.kernel.values import Email, digest, new_id
from core.tenancy import invitations
from core.tenancy.model import invitations as invitations_model
from core.tenancy.model import invitations as model_invitations
from core.tenancy.model.invitations import Invitation, InvitationStatus
from ports import Ports
from tests.fakes.outside import FakeClock, FakeMetrics
from tests.support.builders import add_organization, run_concurrently, run_sql
from tests.support.waiting import PATIENCE, eventually


async def invite(ports: Ports, org: UUID, count: int, expires_at: datetime, name: str = "late") -> list[UUID]:
    """Add `count` invitations that expire at this time."""
    added = [
        Invitation(
            id=new_id(),
            org_id=org,
            email=Email(f"{name}-{number}@example.com"),
            role=MEMBER,
            invited_by=new_id(),
            status=InvitationStatus.PENDING,
            token_hash=digest(str(new_id())),
            expires_at=expires_at,
            created_at=expires_at - timedelta(days=7),
        )
        for number in range(count)
    ]
    async with ports.storage.transaction(by=SYSTEM) as tx:
        for invitation in added:
            await tx.invitations.add(invitation)
    return [invitation.id for invitation in added]


async def expired(pool: Pool) -> set[UUID]:
    return {id_ for (id_,) in await run_sql(pool, "select id from invitations where status = 'expired'")}


async def recorded(pool: Pool) -> list[tuple[Any, ...]]:
    return await run_sql(
        pool, "select org_id, action, target_type, target_id, actor_id, address, details from audit_log order by target_id"
    )


async def test_overdue_invitations_expire_and_the_system_is_the_actor(ports: Ports, pool: Pool, clock: FakeClock) -> None:
    acme, other = await add_organization(pool, "acme"), await add_organization(pool, "acme-two", "suspended")
    late = [await invite(ports, org, 1, clock.now(), org.hex) for org in (acme, other)]
    await invite(ports, acme, 1, clock.now() + timedelta(microseconds=1), "in-time")
    assert await invitations.sweep(ports, new_id()) == {"invitations": 2}
    assert await expired(pool) == {late[0][0], late[1][0]}
    assert await recorded(pool) == sorted(
        [
            (
                org,
                "invitation.expired",
                "invitation",
                str(id_),
                None,
                None,
                {"invited_email": f"{org.hex}-0@example.com", "role": "member"},
            )
            for org, [id_] in zip((acme, other), late, strict=True)
        ],
        key=lambda entry: entry[3],
    )
    assert await run_sql(pool, "select count(*), count(distinct target_id) from events where name = 'invitation.expired'") == [(2, 2)]


async def test_a_sweep_without_overdue_invitations_changes_nothing(ports: Ports, pool: Pool) -> None:
    assert await invitations.sweep(ports, new_id()) == {}
    assert await recorded(pool) == []


async def test_a_backlog_expires_in_batches(ports: Ports, pool: Pool, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_invitations, "BATCH", 4)
    late = await invite(ports, await add_organization(pool, "acme"), 10, clock.now())
    assert await invitations.sweep(ports, new_id()) == {"invitations": 10}
    assert await expired(pool) == set(late)
    assert len(await recorded(pool)) == 10


async def test_one_process_at_a_time_sweeps(ports: Ports, pool: Pool, clock: FakeClock) -> None:
    one, other = new_id(), new_id()
    assert await invitations.sweep(ports, one) == {}
    await invite(ports, await add_organization(pool, "acme"), 1, clock.now())
    assert await invitations.sweep(ports, other) is None
    assert await expired(pool) == set()
    clock.advance(invitations_model.LEASE - timedelta(seconds=1))
    assert await invitations.sweep(ports, one) == {"invitations": 1}  # a living process keeps its lease
    clock.advance(timedelta(seconds=1))
    assert await invitations.sweep(ports, other) is None
    clock.advance(invitations_model.LEASE)
    assert await invitations.sweep(ports, other) == {}


@pytest.mark.slow
async def test_each_invitation_expires_once_with_many_sweepers(
    ports: Ports, pool: Pool, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_invitations, "BATCH", 7)
    # The lease ends at once, so the sweepers compete as often as possible.
    monkeypatch.setattr(model_invitations, "LEASE", timedelta())
    orgs = [await add_organization(pool, slug) for slug in ("acme", "acme-two", "acme-three")]
    late = [id_ for org in orgs for id_ in await invite(ports, org, 20, clock.now(), org.hex)]
    swept = await run_concurrently(8, lambda _: invitations.sweep(ports, new_id()))
    last_counts = await invitations.sweep(ports, new_id())
    assert sum(counts["invitations"] for counts in [*swept, last_counts] if counts) == 60
    assert await expired(pool) == set(late)
    assert [UUID(entry[3]) for entry in await recorded(pool)] == sorted(late)
    assert await run_sql(pool, "select count(*) from events") == [(60,)]


async def test_the_actors_of_several_processes_log_their_work_once(
    ports: Ports, pool: Pool, clock: FakeClock, metrics: FakeMetrics
) -> None:
    org = await add_organization(pool, "acme")
    await invite(ports, org, 3, clock.now())

    async def all_expired() -> bool:
        return len(await expired(pool)) == 5

    with structlog.testing.capture_logs() as log, trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(sweeper, ports, replace(INVITATION_EXPIRY, period=0.01), TimedMailbox(), new_id())
            await eventually(lambda: log)
            await invite(ports, org, 2, clock.now(), "later")
            await eventually(all_expired)
            await eventually(lambda: len(log) > 1)
            nursery.cancel_scope.cancel()
    assert [(line["event"], line["job"], line["invitations"]) for line in log] == [
        ("swept", "invitation_expiry", 3),
        ("swept", "invitation_expiry", 2),
    ]
    assert {job for job, _ in metrics.jobs} == {"invitation_expiry"}
    assert len(await recorded(pool)) == 5
