"""Events and the audit log: what is recorded, of whom, and for which organizations."""

from uuid import UUID, uuid4

import pytest

from adapters.postgres.pool import Pool
from adapters.postgres.storage import Postgres
from core import events
from core.access import SYSTEM, Person
from tests.adapters.rows import ADA, EVE, account, add
from tests.builders import add_member, add_organization, run_sql
from tests.fakes.outside import FakeClock

PERSON = Person(
    user_id=UUID(int=1),
    email=ADA,
    session_id=UUID(int=2),
    impersonator_id=UUID(int=3),
    address="203.0.113.9",
    agent="tests",
)
AUDIT = (
    "select org_id, action, target_type, target_id, actor_id, impersonator_id, address, agent, success, details, created_at from audit_log"
)
TOLD = "select org_id, name, actor_id, impersonator_id, target_id, data, created_at from events"


async def test_every_field_of_an_event_is_recorded(storage: Postgres, pool: Pool, clock: FakeClock) -> None:
    org = await add_organization(pool, "acme")
    await add_organization(pool, "twin")
    kind = events.CATALOGUE["service.created"]
    event = events.Event(kind, "service-1", org_id=org, details={"name": "Shop"}, data={"x": [1]})
    async with storage.transaction(by=PERSON) as tx:
        tx.record(event)
    now = clock.now()
    assert await run_sql(pool, AUDIT) == [
        (org, "service.created", "service", "service-1", UUID(int=1), UUID(int=3), "203.0.113.9", "tests", True, {"name": "Shop"}, now)
    ]
    assert await run_sql(pool, TOLD) == [(org, "service.created", UUID(int=1), UUID(int=3), "service-1", {"x": [1]}, now)]


async def test_an_event_of_the_service_has_no_actor(storage: Postgres, pool: Pool) -> None:
    org = await add_organization(pool, "acme")
    async with storage.transaction(by=SYSTEM) as tx:
        tx.record(events.Event(events.CATALOGUE["invitation.expired"], "x", org_id=org))
    assert await run_sql(pool, "select actor_id, impersonator_id, address, agent from audit_log") == [(None, None, None, None)]


async def test_what_concerns_a_person_is_told_to_each_of_their_organizations(storage: Postgres, pool: Pool) -> None:
    await add(storage, ada := account(), eve := account(EVE))
    one, two, other = [await add_organization(pool, slug) for slug in ("one", "two", "other")]
    for org in (one, two):
        await add_member(pool, org, ada.id)
    await add_member(pool, other, eve.id)
    async with storage.transaction(by=SYSTEM) as tx:
        tx.record(events.password_changed(ada.id, "reset"))
    assert {row[0] for row in await run_sql(pool, AUDIT)} == {row[0] for row in await run_sql(pool, TOLD)} == {one, two}
    assert len(await run_sql(pool, AUDIT)) == len(await run_sql(pool, TOLD)) == 2


async def test_a_named_organization_goes_before_those_of_the_person(storage: Postgres, pool: Pool) -> None:
    ada = await add(storage, account())
    one, two = [await add_organization(pool, slug) for slug in ("one", "two")]
    await add_member(pool, one, ada.id)
    async with storage.transaction(by=SYSTEM) as tx:
        tx.record(events.Event(events.CATALOGUE["user.removed"], str(ada.id), org_id=two, of_person=ada.id))
    assert [row[0] for row in await run_sql(pool, AUDIT)] == [two]


async def test_what_concerns_no_organization_goes_into_the_platforms_own_log(storage: Postgres, pool: Pool) -> None:
    ada = await add(storage, account())
    async with storage.transaction(by=SYSTEM) as tx:
        tx.record(events.password_changed(ada.id, "set"))
    assert [(row[0], row[1]) for row in await run_sql(pool, AUDIT)] == [(None, "security.password.changed")]
    assert [row[0] for row in await run_sql(pool, TOLD)] == [None]


async def test_an_event_that_is_no_audit_action_is_told_only(storage: Postgres, pool: Pool) -> None:
    async with storage.transaction(by=SYSTEM) as tx:
        tx.record(events.signed_up(uuid4()))
    assert await run_sql(pool, AUDIT) == []
    assert [row[1] for row in await run_sql(pool, TOLD)] == ["user.signup.success"]


async def test_a_record_goes_with_its_transaction(storage: Postgres, pool: Pool) -> None:
    with pytest.raises(ZeroDivisionError):  # noqa: PT012 (what comes before the error is the point)
        async with storage.transaction(by=SYSTEM) as tx:
            tx.record(events.password_changed(uuid4(), "set"))
            raise ZeroDivisionError
    assert await run_sql(pool, AUDIT) == await run_sql(pool, TOLD) == []
