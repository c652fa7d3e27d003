"""Organizations with entries in their logs."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.kernel.causes import SYSTEM, Caller
from core.kernel.event_catalog import EVENT_KINDS, Event
from ports import Ports
from tests.eventing.api.audit.log import Record, World, person
from tests.fakes.outside import FakeClock
from tests.support.builders import add_account, add_member, add_organization, sign_in


@pytest.fixture
async def world(ports: Ports, pool: Pool) -> World:
    owner, other = await add_account(ports, "owner@example.com"), await add_account(ports, "other@example.com")
    org, other_tenant = await add_organization(pool, "acme"), await add_organization(pool, "twin")
    await add_member(pool, org, owner.id, "owner", confirmed=True)
    await add_member(pool, other_tenant, other.id, "owner", confirmed=True)
    return World(org, owner, (await sign_in(ports, owner)).access_token, other_tenant, other, (await sign_in(ports, other)).access_token)


@pytest.fixture
def record(ports: Ports, clock: FakeClock, world: World) -> Record:
    """Record events in `org`, a second after the events before."""

    async def record(
        *names: str, org: UUID | None = None, target: str = "x", by: Caller = SYSTEM, details: Mapping[str, Any] | None = None
    ) -> None:
        clock.advance(timedelta(seconds=1))
        async with ports.storage.transaction(by=by, in_session=False) as tx:
            for name in names:
                tx.record(Event(EVENT_KINDS[name], target, org_id=org or world.org, details=details or {}))

    return record


@pytest.fixture
async def admin_with_entries(ports: Ports, world: World, record: Record) -> Account:
    """An admin who is the actor in some recorded entries.

    Both organizations have entries of many kinds.
    """
    admin = await add_account(ports, "admin@example.com")
    for org in (world.org, world.other_tenant):
        await record("user.role_updated", target="u1", by=person(world.owner), org=org)
        await record("user.joined", target="u1", by=person(admin), org=org)
        await record("user.joined", target="u2", by=person(admin), org=org)
        await record("plan.created", target="u1", by=person(world.owner), org=org)
        await record("organization.updated", target=str(org), by=person(world.owner), org=org)
        await record("domain.set", target=str(org), by=person(admin), org=org)
        await record("domain.verified", target=str(org), by=SYSTEM, org=org)
        await record("branding.updated", target=str(org), by=person(admin), org=org)
    return admin
