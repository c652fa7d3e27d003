"""Recording events: fields, organizations, order, and the audit log totals."""

import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from uuid import UUID, uuid4

import pytest

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.accounts import events
from core.authentication.events import signed_in
from core.kernel import event_catalog
from core.kernel.callers import Person
from core.kernel.causes import SYSTEM
from core.kernel.event_catalog import EVENT_KINDS, Event
from tests.fakes.outside import FakeClock
from tests.support.builders import add_member, add_organization, run_concurrently, run_sql
from tests.support.rows import ADA, EVE, account, add

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
EVENTS = "select org_id, name, actor_id, impersonator_id, target_id, data, created_at from events"


async def test_every_field_of_an_event_is_recorded(storage: Postgres, pool: Pool, clock: FakeClock) -> None:
    org = await add_organization(pool, "acme")
    await add_organization(pool, "twin")
    kind = event_catalog.EVENT_KINDS["service.created"]
    event = event_catalog.Event(kind, "service-1", org_id=org, details={"name": "Shop"}, data={"x": [1]})
    async with storage.transaction(by=PERSON, in_session=False) as tx:
        tx.record(event)
    now = clock.now()
    assert await run_sql(pool, AUDIT) == [
        (org, "service.created", "service", "service-1", UUID(int=1), UUID(int=3), None, None, True, {"name": "Shop"}, now)
    ]  # without the impersonator's address and agent
    assert await run_sql(pool, EVENTS) == [(org, "service.created", UUID(int=1), UUID(int=3), "service-1", {"x": [1]}, now)]


async def test_an_entry_gets_the_id_of_its_event(storage: Postgres, pool: Pool) -> None:
    org, chosen = await add_organization(pool, "acme"), uuid4()
    kind = event_catalog.EVENT_KINDS["user.impersonated"]
    async with storage.transaction(by=PERSON, in_session=False) as tx:
        tx.record(event_catalog.Event(kind, "with", id=chosen))
        tx.record(event_catalog.Event(kind, "without", org_id=org))
    rows = await run_sql(pool, "select target_id, id = %s, org_id from audit_log order by created_at", chosen)
    assert rows == [("with", True, None), ("without", False, org)]
    assert await run_sql(pool, "select count(*) from events where id = %s", chosen) == [(0,)], "the event has a different id"


async def test_an_event_names_the_impersonator_if_the_caller_does_not(storage: Postgres, pool: Pool) -> None:
    kind, other = event_catalog.EVENT_KINDS["user.impersonated"], uuid4()
    for caller in (replace(PERSON, impersonator_id=None), PERSON, SYSTEM):
        async with storage.transaction(by=caller, in_session=False) as tx:
            tx.record(event_catalog.Event(kind, "x", impersonator_id=other))
            tx.record(event_catalog.Event(kind, "x", impersonator_id=other, by_time=True))
    for table in ("audit_log", "events"):
        rows = await run_sql(pool, f"select actor_id, impersonator_id, count(*) from {table} group by 1, 2 order by 1")  # noqa: S608
        assert rows == [(UUID(int=1), other, 2), (None, other, 4)], table


async def test_an_event_of_the_system_has_no_actor(storage: Postgres, pool: Pool) -> None:
    org = await add_organization(pool, "acme")
    async with storage.transaction(by=SYSTEM) as tx:
        tx.record(event_catalog.Event(event_catalog.EVENT_KINDS["invitation.expired"], "x", org_id=org))
    assert await run_sql(pool, "select actor_id, impersonator_id, address, agent from audit_log") == [(None, None, None, None)]


async def test_an_event_about_a_person_is_recorded_for_each_of_their_organizations(storage: Postgres, pool: Pool) -> None:
    await add(storage, user := account(), eve := account(EVE))
    one, two, other = [await add_organization(pool, slug) for slug in ("one", "two", "other")]
    for org in (one, two):
        await add_member(pool, org, user.id, confirmed=True)
    await add_member(pool, other, eve.id, confirmed=True)
    async with storage.transaction(by=SYSTEM) as tx:
        tx.record(events.password_changed(user.id, "reset"))
    assert {row[0] for row in await run_sql(pool, AUDIT)} == {row[0] for row in await run_sql(pool, EVENTS)} == {one, two}
    assert len(await run_sql(pool, AUDIT)) == len(await run_sql(pool, EVENTS)) == 2


async def test_an_organization_with_an_unconfirmed_membership_learns_nothing_about_the_account(storage: Postgres, pool: Pool) -> None:
    """The organization has no rights over the account before the user confirms the membership (security R-5)."""
    await add(storage, user := account())
    confirmed_org, unconfirmed_org = [await add_organization(pool, slug) for slug in ("joined", "added")]
    await add_member(pool, unconfirmed_org, user.id)
    async with storage.transaction(by=SYSTEM) as tx:
        tx.record(events.password_changed(user.id, "reset"))
    assert [row[0] for row in await run_sql(pool, AUDIT)] == [row[0] for row in await run_sql(pool, EVENTS)] == [None]
    await add_member(pool, confirmed_org, user.id, confirmed=True)
    async with storage.transaction(by=SYSTEM) as tx:
        tx.record(events.password_changed(user.id, "reset"))
    assert {row[0] for row in await run_sql(pool, AUDIT)} == {row[0] for row in await run_sql(pool, EVENTS)} == {None, confirmed_org}
    assert await totals(pool) == {(confirmed_org, "security.password.changed", "user"): 1}


async def test_a_sign_in_to_the_platform_is_recorded_for_each_approved_organization_of_the_member(storage: Postgres, pool: Pool) -> None:
    """Anyone can create organizations, so organizations without approval must not multiply the entries for a frequent event."""
    await add(storage, user := account(), eve := account(EVE))
    statuses = ["active", "suspended", "pending", "rejected"]
    organizations = {status: await add_organization(pool, status, status) for status in statuses}
    foreign, unconfirmed = await add_organization(pool, "foreign"), await add_organization(pool, "unconfirmed")
    for org in organizations.values():
        await add_member(pool, org, user.id, confirmed=True)
    await add_member(pool, foreign, eve.id, confirmed=True)
    await add_member(pool, unconfirmed, user.id)
    approved = {organizations["active"], organizations["suspended"]}
    async with storage.transaction(by=replace(PERSON, user_id=user.id), in_session=False) as tx:
        tx.record(signed_in(user.id, ("codehost",)))
    assert {(row[0], row[1], row[3], row[9]["provider"]) for row in await run_sql(pool, AUDIT)} == {
        (org, "user.login.success", str(user.id), "codehost") for org in approved
    }
    assert {row[0] for row in await run_sql(pool, EVENTS)} == approved
    assert await totals(pool) == {(org, "user.login.success", "user"): 1 for org in approved}
    assert {row[0] for row in await run_sql(pool, "select org_id from member_login_totals where total = 1")} == approved


async def test_a_sign_in_of_a_user_without_organizations_is_in_no_log(storage: Postgres, pool: Pool) -> None:
    user = await add(storage, account())
    async with storage.transaction(by=SYSTEM) as tx:
        tx.record(signed_in(user.id, ("password",)))
    assert await run_sql(pool, AUDIT) == []
    assert [row[0] for row in await run_sql(pool, EVENTS)] == [None]


async def test_a_sign_in_of_a_user_who_is_known_to_have_no_membership_leaves_the_same_row(storage: Postgres, pool: Pool) -> None:
    user = await add(storage, account())
    by = replace(PERSON, user_id=user.id)
    for is_member in (True, False):
        async with storage.transaction(by=by, in_session=False) as tx:
            tx.record(signed_in(user.id, ("password", "totp"), is_member=is_member))
    rows = await run_sql(pool, "select org_id, name, actor_id, actor_kind, impersonator_id, target_id, data, created_at from events")
    assert len(rows) == 2
    assert rows[0] == rows[1]
    assert await run_sql(pool, AUDIT) == []


async def test_the_organization_of_an_event_takes_precedence_over_those_of_the_person(storage: Postgres, pool: Pool) -> None:
    user = await add(storage, account())
    one, two = [await add_organization(pool, slug) for slug in ("one", "two")]
    await add_member(pool, one, user.id, confirmed=True)
    async with storage.transaction(by=SYSTEM) as tx:
        tx.record(event_catalog.Event(event_catalog.EVENT_KINDS["user.removed"], str(user.id), org_id=two, of_person=user.id))
    assert [row[0] for row in await run_sql(pool, AUDIT)] == [two]


async def test_an_event_without_organization_goes_to_the_log_of_the_platform(storage: Postgres, pool: Pool) -> None:
    user = await add(storage, account())
    async with storage.transaction(by=SYSTEM) as tx:
        tx.record(events.password_changed(user.id, "set"))
    assert [(row[0], row[1]) for row in await run_sql(pool, AUDIT)] == [(None, "security.password.changed")]
    assert [row[0] for row in await run_sql(pool, EVENTS)] == [None]


async def test_an_event_that_is_not_audited_has_no_entry(storage: Postgres, pool: Pool) -> None:
    async with storage.transaction(by=SYSTEM) as tx:
        tx.record(events.signed_up(uuid4()))
    assert await run_sql(pool, AUDIT) == []
    assert [row[1] for row in await run_sql(pool, EVENTS)] == ["user.signup.success"]


async def test_a_rollback_removes_the_event(storage: Postgres, pool: Pool) -> None:
    with pytest.raises(ZeroDivisionError):  # noqa: PT012 (the statements before the error are under test)
        async with storage.transaction(by=SYSTEM) as tx:
            tx.record(events.password_changed(uuid4(), "set"))
            raise ZeroDivisionError
    assert await run_sql(pool, AUDIT) == await run_sql(pool, EVENTS) == []


# Order


async def test_events_of_one_transaction_are_a_microsecond_apart(storage: Postgres, pool: Pool, clock: FakeClock) -> None:
    user = await add(storage, account())
    one, two = [await add_organization(pool, slug) for slug in ("one", "two")]
    for org in (one, two):
        await add_member(pool, org, user.id, confirmed=True)
    async with storage.transaction(by=SYSTEM) as tx:
        tx.record(make_event("user.invited", one))
        tx.record(events.signed_up(user.id))
        tx.record(events.password_changed(user.id, "set"))
        tx.record(make_event("user.invited", two))
    at = [clock.now() + number * timedelta(microseconds=1) for number in range(4)]
    assert await run_sql(pool, "select name, created_at from events order by created_at, name") == [
        ("user.invited", at[0]),
        ("user.signup.success", at[1]),
        *[("security.password.changed", at[2])] * 2,
        ("user.invited", at[3]),
    ]
    assert await run_sql(pool, "select action, created_at from audit_log where org_id = %s order by created_at", two) == [
        ("security.password.changed", at[2]),
        ("user.invited", at[3]),
    ]


# Totals


def make_event(name: str, org: UUID, target: str = "x") -> Event:
    return Event(EVENT_KINDS[name], target, org_id=org, details={"provider": "password"})


async def totals(pool: Pool) -> dict[tuple[UUID, str, str], int]:
    """Return the stored totals, after comparing them with the counted entries."""
    rows = await run_sql(pool, "select org_id, action, target_type, total from audit_totals")
    counts = await run_sql(
        pool, "select org_id, action, target_type, count(*) from audit_log where org_id is not null group by org_id, action, target_type"
    )
    assert sorted(rows, key=str) == sorted(counts, key=str)
    return {(org, action, target_type): total for org, action, target_type, total in rows}


async def test_totals_count_entries_by_organization_and_action(storage: Postgres, pool: Pool) -> None:
    one, two = [await add_organization(pool, slug) for slug in ("one", "two")]
    assert await totals(pool) == {}
    async with storage.transaction(by=SYSTEM) as tx:
        for name in ("user.invited", "plan.created", "user.invited", "user.invited"):
            tx.record(make_event(name, one))
        tx.record(make_event("user.invited", two))
    assert await totals(pool) == {
        (one, "user.invited", "invitation"): 3,
        (one, "plan.created", "plan"): 1,
        (two, "user.invited", "invitation"): 1,
    }
    async with storage.transaction(by=SYSTEM) as tx:
        tx.record(make_event("user.invited", two))
    assert (await totals(pool))[two, "user.invited", "invitation"] == 2


async def test_an_event_about_a_person_counts_in_each_of_their_organizations(storage: Postgres, pool: Pool) -> None:
    await add(storage, user := account(), eve := account(EVE))
    one, two, other = [await add_organization(pool, slug) for slug in ("one", "two", "other")]
    for org in (one, two):
        await add_member(pool, org, user.id, confirmed=True)
    await add_member(pool, other, eve.id, confirmed=True)
    async with storage.transaction(by=SYSTEM) as tx:
        tx.record(events.password_changed(user.id, "set"))
        tx.record(events.password_changed(user.id, "change"))
        tx.record(make_event("security.password.changed", two, str(user.id)))
    event = ("security.password.changed", "user")
    assert await totals(pool) == {(one, *event): 2, (two, *event): 3}


async def test_events_without_an_entry_of_an_organization_are_not_counted(storage: Postgres, pool: Pool) -> None:
    user = await add(storage, account())
    async with storage.transaction(by=SYSTEM) as tx:
        tx.record(events.password_changed(user.id, "set"))  # in the platform's log
        tx.record(events.signed_up(user.id))  # not audited
    assert await totals(pool) == {}


async def test_a_rollback_restores_the_totals(storage: Postgres, pool: Pool) -> None:
    org = await add_organization(pool, "acme")
    async with storage.transaction(by=SYSTEM) as tx:
        tx.record(make_event("user.invited", org))
    with pytest.raises(ZeroDivisionError):  # noqa: PT012 (the statements before the error are under test)
        async with storage.transaction(by=SYSTEM) as tx:
            tx.record(make_event("user.invited", org))
            tx.record(make_event("plan.created", org))
            await tx.write_events()
            raise ZeroDivisionError
    assert await totals(pool) == {(org, "user.invited", "invitation"): 1}


def recorder(storage: Postgres, choose: Callable[[int], list[Event]], times: int = 5) -> Callable[[int], Awaitable[None]]:
    """Return a function that runs transactions in a row and records the chosen events in all of them."""

    async def record(number: int) -> None:
        for _ in range(times):
            async with storage.transaction(by=SYSTEM) as tx:
                for event in choose(number):
                    tx.record(event)

    return record


@pytest.mark.slow
async def test_concurrent_events_in_opposite_order_are_all_counted(storage: Postgres, pool: Pool) -> None:
    one, two = [await add_organization(pool, slug) for slug in ("one", "two")]
    both = [make_event("user.invited", one), make_event("plan.created", one), make_event("user.invited", two)]
    await run_concurrently(20, recorder(storage, lambda number: both if number % 2 else both[::-1]))
    assert set((await totals(pool)).values()) == {100}
    assert len(await totals(pool)) == 3


@pytest.mark.slow
async def test_concurrent_events_about_members_of_the_same_organizations_are_all_counted(storage: Postgres, pool: Pool) -> None:
    people = [await add(storage, account(f"{number}@example.com")) for number in range(20)]
    organizations = [await add_organization(pool, f"org-{number}") for number in range(5)]
    for number, person in enumerate(people):  # so that their membership rows are in different orders
        for org in organizations if number % 2 else organizations[::-1]:
            await add_member(pool, org, person.id, confirmed=True)
    await run_concurrently(20, recorder(storage, lambda number: [events.password_changed(people[number].id, "change")]))
    assert await totals(pool) == {(org, "security.password.changed", "user"): 100 for org in organizations}


@pytest.mark.slow
async def test_concurrent_random_events_are_all_counted(storage: Postgres, pool: Pool) -> None:
    people = [await add(storage, account(f"{number}@example.com")) for number in range(5)]
    organizations = [await add_organization(pool, f"org-{number}") for number in range(5)]
    dice = random.Random(7)  # noqa: S311
    for person in people:
        for org in dice.sample(organizations, dice.randrange(6)):
            await add_member(pool, org, person.id, confirmed=True)
    names = dice.sample(sorted(event_catalog.AUDIT_ACTIONS), 8)

    def choose(_: int) -> list[Event]:
        organization_events = [make_event(name, org) for name in names for org in organizations]
        account_events = [events.password_changed(person.id, "change") for person in people]
        account_events += [signed_in(person.id, ("password",)) for person in people]
        return dice.sample([*organization_events, *account_events], dice.randrange(12))

    await run_concurrently(20, recorder(storage, choose))
    assert sum((await totals(pool)).values()) > 100
    logins = "select org_id, count(*) from audit_log where action = 'user.login.success' group by org_id order by org_id"
    totals_of_logins = "select org_id, sum(total)::bigint from member_login_totals group by org_id order by org_id"
    assert await run_sql(pool, totals_of_logins) == await run_sql(pool, logins) != []
