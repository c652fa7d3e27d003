"""Reading the audit log: fields, filters, and isolation between organizations."""

from dataclasses import replace
from datetime import timedelta
from itertools import product
from uuid import UUID, uuid4

from psycopg.types.json import Jsonb

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.eventing.model.audit import ANONYMOUS, DELETED_ACCOUNT, AuditActor, AuditEntry, AuditFilter
from core.eventing.model.audit import SYSTEM as SYSTEM_ACTOR
from core.kernel.callers import Person, ScimClient
from core.kernel.causes import SYSTEM, Anonymous
from core.kernel.event_catalog import EVENT_KINDS, Event
from core.kernel.values import Page, PageResult
from tests.fakes.outside import FakeClock
from tests.support.builders import add_organization, run_sql
from tests.support.rows import ADA, EVE, account, add

FIRST = Page(1, 50)
PERSON = Person(user_id=uuid4(), email=ADA, session_id=uuid4(), address="203.0.113.9", agent="tests")


async def read(storage: Postgres, org: UUID, filter_: AuditFilter, page: Page = FIRST) -> PageResult[AuditEntry]:
    async with storage.reading() as reading:
        return await reading.audit.page(org, filter_, page)


async def test_every_field_of_an_entry_is_read(storage: Postgres, pool: Pool, clock: FakeClock) -> None:
    await add(storage, user := account(), eve := account(EVE, is_platform_owner=True))
    org = await add_organization(pool, "acme")
    kind = EVENT_KINDS["service.created"]
    async with storage.transaction(by=replace(PERSON, user_id=user.id, impersonator_id=eve.id), in_session=False) as tx:
        tx.record(Event(kind, "service-1", org_id=org, details={"name": "Shop", "nested": {"x": [1, None]}}))
    page = await read(storage, org, AuditFilter())
    [(id_,)] = await run_sql(pool, "select id from audit_log")
    assert page == PageResult(
        [
            AuditEntry(
                id=id_,
                org_id=org,
                actor=AuditActor(str(user.id), ADA),
                impersonator=AuditActor(str(eve.id), EVE, is_platform_owner=True),
                action="service.created",
                target_type="service",
                target_id="service-1",
                address=None,  # the platform's log alone has the impersonator's address
                agent=None,
                success=True,
                details={"name": "Shop", "nested": {"x": [1, None]}},
                created_at=clock.now(),
            )
        ],
        1,
    )
    await run_sql(pool, "update audit_log set success = false, details = %s", Jsonb({}))
    [entry] = (await read(storage, org, AuditFilter())).items
    assert (entry.success, entry.details) == (False, {})
    async with storage.transaction(by=replace(PERSON, user_id=user.id, impersonator_id=None), in_session=False) as tx:
        tx.record(Event(kind, "service-2", org_id=org))
    entry = next(each for each in (await read(storage, org, AuditFilter())).items if each.target_id == "service-2")
    assert (entry.address, entry.agent) == ("203.0.113.9", "tests")


async def test_actors_without_account_are_distinguished(storage: Postgres, pool: Pool) -> None:
    org = await add_organization(pool, "acme")
    for caller in (PERSON, replace(PERSON, impersonator_id=uuid4()), Anonymous(address="203.0.113.9"), SYSTEM):
        async with storage.transaction(by=caller, in_session=False) as tx:
            tx.record(Event(EVENT_KINDS["user.invited"], type(caller).__name__, org_id=org))
    actors = {(entry.target_id, entry.actor, entry.impersonator) for entry in (await read(storage, org, AuditFilter())).items}
    assert actors == {
        ("Person", DELETED_ACCOUNT, None),
        ("Person", DELETED_ACCOUNT, DELETED_ACCOUNT),
        ("Anonymous", ANONYMOUS, None),
        ("System", SYSTEM_ACTOR, None),
    }


async def test_pages_keep_the_order_of_entries_with_the_same_time(storage: Postgres, pool: Pool) -> None:
    org = await add_organization(pool, "acme")
    for _ in range(7):
        async with storage.transaction(by=SYSTEM) as tx:
            tx.record(Event(EVENT_KINDS["user.invited"], "x", org_id=org))
    for filter_ in (AuditFilter(), AuditFilter(actions=frozenset({"user.invited"}))):
        pages = [await read(storage, org, filter_, Page(number, 2)) for number in (1, 2, 3, 4, 5)]
        ids = [entry.id for page in pages for entry in page.items]
        assert [len(page.items) for page in pages] == [2, 2, 2, 1, 0]
        assert {page.total for page in pages} == {7}
        assert ids == sorted(ids, key=str, reverse=True)


async def test_a_filter_selects_actors_without_account(storage: Postgres, pool: Pool) -> None:
    org, other_tenant = await add_organization(pool, "acme"), await add_organization(pool, "twin")
    for org_id, caller in product((org, other_tenant), (PERSON, Anonymous(address="203.0.113.9"), SYSTEM)):
        async with storage.transaction(by=caller, in_session=False) as tx:
            for action in ("user.removed", "user.joined"):
                tx.record(Event(EVENT_KINDS[action], "t1", org_id=org_id))
    for actor in (ANONYMOUS, SYSTEM_ACTOR):
        for filter_, count in (
            (AuditFilter(), 2),
            (AuditFilter(actions=frozenset({"user.joined"})), 1),
            (AuditFilter(target_type="user", target_id="t1"), 2),
            (AuditFilter(target_type="user", target_id="t2"), 0),
            (AuditFilter(target_type="plan"), 0),
        ):
            page = await read(storage, org, replace(filter_, actor_without_account=actor))
            assert [(entry.org_id, entry.actor) for entry in page.items] == [(org, actor)] * count
            assert page.total == count


DIRECTORY = ScimClient(token_id=UUID(int=7), org_id=UUID(int=8), org_slug="acme")
ACTIONS = ["user.invited", "user.joined", "plan.created", "domain.set", "domain.verified"]
TARGETS = ["t1", "t2"]


async def test_every_combination_of_filters_finds_and_counts_its_entries(storage: Postgres, pool: Pool, clock: FakeClock) -> None:
    await add(storage, user := account(), eve := account(EVE))
    org, other_tenant = [await add_organization(pool, slug) for slug in ("acme", "twin")]
    entries = [*product([org, org, other_tenant], ACTIONS, TARGETS, [user.id, eve.id])]
    for org_id, action, target_id, actor_id in entries:
        clock.advance(timedelta(seconds=1))
        async with storage.transaction(by=replace(PERSON, user_id=actor_id), in_session=False) as tx:
            tx.record(Event(EVENT_KINDS[action], target_id, org_id=org_id))
    sets = [None, frozenset({"user.joined"}), frozenset({"domain.set", "domain.verified"}), frozenset({"plan.deleted"})]
    cases = product(sets, [None, "user", "organization", "service"], [None, "t1", "t3"], [None, user.id, uuid4()])
    for actions, target_type, target, by in cases:
        filter_ = AuditFilter(actions=actions, target_type=target_type, target_id=target, actor_id=by)
        page = await read(storage, org, filter_, Page(1, 100))
        expected = [
            (action, target_id, str(actor_id))
            for org_id, action, target_id, actor_id in reversed(entries)
            if org_id == org
            and (actions is None or action in actions)
            and target_type in (None, EVENT_KINDS[action].target)
            and target in (None, target_id)
            and by in (None, actor_id)
        ]
        assert [(entry.action, entry.target_id, entry.actor.id) for entry in page.items] == expected
        assert page.total == len(expected)
        second = await read(storage, org, filter_, Page(2, 3))
        assert [entry.id for entry in second.items] == [entry.id for entry in page.items[3:6]]


async def test_filters_by_success_and_time_join_the_others(storage: Postgres, pool: Pool, clock: FakeClock) -> None:
    org, other_tenant = await add_organization(pool, "acme"), await add_organization(pool, "twin")
    start = clock.now()
    entries = [*product([org, other_tenant], ["user.joined", "plan.created"], [True, False], range(3))]
    times = []
    for org_id, action, succeeded, number in entries:
        clock.advance(timedelta(seconds=1))
        times.append(clock.now())
        async with storage.transaction(by=PERSON, in_session=False) as tx:
            tx.record(Event(EVENT_KINDS[action], f"t{number}", org_id=org_id, success=succeeded))
    bounds = [None, start, start + timedelta(seconds=4), start + timedelta(seconds=9)]
    cases = product([None, frozenset({"user.joined"})], [None, "user"], [None, True, False], bounds, bounds)
    for actions, target_type, success, since, until in cases:
        filter_ = AuditFilter(actions=actions, target_type=target_type, success=success, since=since, until=until)
        page = await read(storage, org, filter_)
        expected = [
            (time, action)
            for time, (org_id, action, succeeded, _) in zip(reversed(times), reversed(entries), strict=True)
            if org_id == org
            and (actions is None or action in actions)
            and target_type in (None, EVENT_KINDS[action].target)
            and success in (None, succeeded)
            and (since is None or since <= time)
            and (until is None or time < until)
        ]
        assert [(entry.created_at, entry.action) for entry in page.items] == expected
        assert page.total == len(expected)
        async with storage.reading() as reading:
            first = await reading.audit.batch(org, filter_, None, 2)
            rest = await reading.audit.batch(org, filter_, first[-1], 50) if first else []
        assert [*first, *rest] == page.items


async def test_an_entry_is_found_by_its_id_in_its_organization_only(storage: Postgres, pool: Pool) -> None:
    org, other_tenant = await add_organization(pool, "acme"), await add_organization(pool, "twin")
    async with storage.transaction(by=SYSTEM) as tx:
        tx.record(Event(EVENT_KINDS["user.joined"], "t1", org_id=org))
    [entry] = (await read(storage, org, AuditFilter())).items
    async with storage.reading() as reading:
        assert await reading.audit.by_id(org, entry.id) == entry
        assert await reading.audit.by_id(other_tenant, entry.id) is None
        assert await reading.audit.by_id(org, uuid4()) is None


async def test_forgetting_an_account_removes_the_users_own_activity_from_every_log_and_total(storage: Postgres, pool: Pool) -> None:
    await add(storage, user := account(), eve := account(EVE))
    orgs = [await add_organization(pool, slug) for slug in ("acme", "twin")]
    async with storage.transaction(by=replace(PERSON, user_id=user.id), in_session=False) as tx:
        for org in (*orgs, None):
            for name in ("security.password.changed", "security.mfa.enabled", "user.email_changed", "user.joined"):
                tx.record(Event(EVENT_KINDS[name], str(user.id), org_id=org))
            tx.record(Event(EVENT_KINDS["security.password.changed"], str(eve.id), org_id=org))
            tx.record(Event(EVENT_KINDS["service.created"], str(user.id), org_id=org))
    for caller in (Anonymous(address="203.0.113.9"), DIRECTORY):  # by the link in an email, and by a credential
        async with storage.transaction(by=caller) as tx:
            tx.record(Event(EVENT_KINDS["user.email_changed"], str(user.id), org_id=orgs[0]))
            tx.record(Event(EVENT_KINDS["user.email_changed"], str(user.id)))
    async with storage.transaction(by=SYSTEM) as tx:
        await tx.audit.forget(user.id)
    by_directory = "delete from audit_log where action = 'user.email_changed' and actor_kind = 'scim_token' returning org_id"
    assert {row[0] for row in await run_sql(pool, by_directory)} == {orgs[0], None}
    await run_sql(pool, "delete from audit_totals where action = 'user.email_changed' and total = 1")
    remaining_entries = [("security.password.changed", str(eve.id)), ("service.created", str(user.id)), ("user.joined", str(user.id))]
    for org in (*orgs, None):
        entries = "select action, target_id from audit_log where org_id is not distinct from %s order by action"
        assert await run_sql(pool, entries, org) == remaining_entries
    for org in orgs:
        totals = "select action, total from audit_totals where org_id = %s and total <> 0 order by action"
        assert await run_sql(pool, totals, org) == [(action, 1) for action, _ in remaining_entries]
        assert (await read(storage, org, AuditFilter(actions=frozenset({"security.mfa.enabled"})))).total == 0
