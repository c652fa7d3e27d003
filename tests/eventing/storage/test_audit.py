"""Reading the audit log: fields, filters, isolation of organizations, and few reads of a large log."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from itertools import product
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.types.json import Jsonb

from adapters.postgres.engine.connecting import connect
from adapters.postgres.engine.driver import Connection
from adapters.postgres.engine.pool import Pool
from adapters.postgres.engine.scope import Scope
from adapters.postgres.engine.storage import Postgres
from adapters.postgres.eventing.audit import Audit
from core.eventing.audit_rules import ANONYMOUS, DELETED_ACCOUNT, AuditActor, AuditEntry, AuditFilter
from core.eventing.audit_rules import SYSTEM as SYSTEM_ACTOR
from core.kernel.event_catalog import EVENT_KINDS, Event
from core.kernel.principals import SYSTEM, Anonymous, Person
from core.kernel.values import Page, PageResult
from ports.signals import NoSignals
from tests.fakes.outside import FakeClock
from tests.support import database
from tests.support.builders import add_organization, make_vault, run_sql
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
    listed = await read(storage, org, AuditFilter())
    [(id_,)] = await run_sql(pool, "select id from audit_log")
    assert listed == PageResult(
        [
            AuditEntry(
                id=id_,
                org_id=org,
                actor=AuditActor(str(user.id), ADA),
                impersonator=AuditActor(str(eve.id), EVE, is_platform_owner=True),
                action="service.created",
                target_type="service",
                target_id="service-1",
                address="203.0.113.9",
                agent="tests",
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
    for where, caller in product((org, other_tenant), (PERSON, Anonymous(address="203.0.113.9"), SYSTEM)):
        async with storage.transaction(by=caller, in_session=False) as tx:
            for action in ("user.invited", "user.joined"):
                tx.record(Event(EVENT_KINDS[action], "t1", org_id=where))
    for actor in (ANONYMOUS, SYSTEM_ACTOR):
        for filter_, count in (
            (AuditFilter(), 2),
            (AuditFilter(actions=frozenset({"user.joined"})), 1),
            (AuditFilter(target_type="user", target_id="t1"), 2),
            (AuditFilter(target_type="user", target_id="t2"), 0),
            (AuditFilter(target_type="plan"), 0),
        ):
            listed = await read(storage, org, replace(filter_, actor_without_account=actor))
            assert [(entry.org_id, entry.actor) for entry in listed.items] == [(org, actor)] * count
            assert listed.total == count


ACTIONS = ["user.invited", "user.joined", "plan.created", "domain.set", "domain.verified"]
TARGETS = ["t1", "t2"]


async def test_every_combination_of_filters_finds_and_counts_its_entries(storage: Postgres, pool: Pool, clock: FakeClock) -> None:
    await add(storage, user := account(), eve := account(EVE))
    org, other_tenant = [await add_organization(pool, slug) for slug in ("acme", "twin")]
    written = [*product([org, org, other_tenant], ACTIONS, TARGETS, [user.id, eve.id])]
    for where, action, target_id, actor_id in written:
        clock.advance(timedelta(seconds=1))
        async with storage.transaction(by=replace(PERSON, user_id=actor_id), in_session=False) as tx:
            tx.record(Event(EVENT_KINDS[action], target_id, org_id=where))
    sets = [None, frozenset({"user.joined"}), frozenset({"domain.set", "domain.verified"}), frozenset({"plan.deleted"})]
    cases = product(sets, [None, "user", "organization", "service"], [None, "t1", "t3"], [None, user.id, uuid4()])
    for actions, target_type, target, by in cases:
        filter_ = AuditFilter(actions=actions, target_type=target_type, target_id=target, actor_id=by)
        listed = await read(storage, org, filter_, Page(1, 100))
        expected = [
            (action, target_id, str(actor_id))
            for where, action, target_id, actor_id in reversed(written)
            if where == org
            and (actions is None or action in actions)
            and target_type in (None, EVENT_KINDS[action].target)
            and target in (None, target_id)
            and by in (None, actor_id)
        ]
        assert [(entry.action, entry.target_id, entry.actor.id) for entry in listed.items] == expected
        assert listed.total == len(expected)
        second = await read(storage, org, filter_, Page(2, 3))
        assert [entry.id for entry in second.items] == [entry.id for entry in listed.items[3:6]]


# A large log. Most entries belong to one organization. Rare ones must be found as quickly as
# frequent ones.

ORG, FREQUENT, RARE = UUID(int=1), UUID(int=2), UUID(int=3)
# 120,000 entries; ORG has two thirds of them. FREQUENT is the actor of half of its entries. RARE is
# the actor of three of the oldest entries, so that a search in the order of time would read all
# others first.
FILL_LOG = """
    insert into audit_log (id, org_id, action, target_type, target_id, actor_id, address, details, created_at)
    select gen_random_uuid(), case when mod(n, 3) > 0 then %(org)s else md5(mod(n, 600)::text)::uuid end,
           case when is_rare then 'domain.set' when mod(n, 5) = 0 then 'plan.created' else 'user.invited' end,
           case when is_rare then 'organization' when mod(n, 5) = 0 then 'plan' else 'user' end,
           case when mod(n, 3000) = 1 then 'busy' else md5(mod(n, 20000)::text) end,
           case when is_rare then %(rare)s when mod(n, 2) = 0 then %(frequent)s when mod(n, 10001) = 0 then null
                else md5(mod(n, 5000)::text)::uuid end,
           '203.0.113.9', '{}', now() - n * interval '1 second'
    from generate_series(1, 120000) n, lateral (select n = any(%(few)s) as is_rare) l"""
FILL_TOTALS = """
    insert into audit_totals (org_id, action, target_type, total)
    select org_id, action, target_type, count(*) from audit_log group by org_id, action, target_type"""


@pytest.fixture(scope="module")
def large_database(server: str) -> Iterator[str]:
    """A separate database, because so many rows would slow down other tests."""
    with database.Database(server) as own:
        with psycopg.connect(own.conninfo, autocommit=True) as connection:
            few = [119_996, 119_998, 119_999]
            connection.execute(FILL_LOG, {"org": ORG, "frequent": FREQUENT, "rare": RARE, "few": few})
            connection.execute(FILL_TOTALS)
            database.settle(connection, "audit_log", "audit_totals")
        yield own.conninfo


STATISTICS = """
    select seq_scan, seq_tup_read + coalesce(idx_tup_fetch, 0) from pg_stat_xact_user_tables where relname = 'audit_log'"""


async def rows_read(connection: Connection, filter_: AuditFilter, page: Page) -> tuple[PageResult[AuditEntry], int, int]:
    """Return the page, the number of scans of the whole log, and the number of rows read.

    Rows that an index alone can count are not counted.
    """
    async with connection.transaction():
        [before] = await connection.rows(STATISTICS)
        listed = await Audit(Scope(connection, make_vault(), NoSignals())).page(ORG, filter_, page)
        [after] = await connection.rows(STATISTICS)
    return listed, after[0] - before[0], after[1] - before[1]


ACTION, DOMAIN = frozenset({"user.invited"}), frozenset({"domain.set", "domain.verified", "domain.deleted"})
LARGE = {
    # The number of matching entries by filter.
    AuditFilter(): 80_000,
    AuditFilter(actions=ACTION): 63_997,
    AuditFilter(actions=frozenset({"domain.set"})): 3,
    AuditFilter(actions=frozenset({"plan.deleted"})): 0,
    AuditFilter(actions=DOMAIN): 3,
    AuditFilter(target_type="user"): 63_997,
    AuditFilter(target_type="organization"): 3,
    AuditFilter(target_type="service"): 0,
    AuditFilter(target_type="user", target_id="busy"): 40,
    AuditFilter(target_type="user", target_id="nothing"): 0,
    AuditFilter(actions=ACTION, target_type="user", target_id="busy"): 40,
    AuditFilter(actions=DOMAIN, target_type="organization", target_id="busy"): 0,
    AuditFilter(actor_id=FREQUENT): 39_998,
    AuditFilter(actor_id=RARE): 3,
    AuditFilter(actor_id=UUID(int=9)): 0,
    AuditFilter(actor_without_account=SYSTEM_ACTOR): 0,
    AuditFilter(actor_without_account=ANONYMOUS): 4,
    AuditFilter(actions=ACTION, actor_without_account=ANONYMOUS): 3,
    AuditFilter(actions=ACTION, actor_id=RARE): 0,
    AuditFilter(actions=DOMAIN, actor_id=RARE): 3,
    AuditFilter(target_type="user", actor_id=RARE): 0,
    AuditFilter(target_type="user", target_id="busy", actor_id=RARE): 0,
}


@pytest.mark.slow
@pytest.mark.parametrize("plans", ["force_custom_plan", "force_generic_plan"])
async def test_a_page_of_a_large_log_reads_few_other_rows(large_database: str, plans: str) -> None:
    async with await connect(large_database, timeout=5) as connection:
        await connection.run(f"set plan_cache_mode = {plans}")
        for filter_, total in LARGE.items():
            listed, whole, read = await rows_read(connection, filter_, FIRST)
            assert (listed.total, len(listed.items), whole) == (total, min(total, 50), 0), filter_
            assert read <= 200, filter_  # the page, and the count of a small result, of 120,000


async def test_forgetting_an_account_removes_its_security_entries_from_every_log_and_total(storage: Postgres, pool: Pool) -> None:
    await add(storage, user := account(), eve := account(EVE))
    orgs = [await add_organization(pool, slug) for slug in ("acme", "twin")]
    async with storage.transaction(by=replace(PERSON, user_id=user.id), in_session=False) as tx:
        for org in (*orgs, None):
            for name in ("security.password.changed", "security.mfa.enabled", "user.joined"):
                tx.record(Event(EVENT_KINDS[name], str(user.id), org_id=org))
            tx.record(Event(EVENT_KINDS["security.password.changed"], str(eve.id), org_id=org))
            tx.record(Event(EVENT_KINDS["service.created"], str(user.id), org_id=org))
    async with storage.transaction(by=SYSTEM) as tx:
        await tx.audit.forget(user.id)
    left = [("security.password.changed", str(eve.id)), ("service.created", str(user.id)), ("user.joined", str(user.id))]
    for org in (*orgs, None):
        entries = "select action, target_id from audit_log where org_id is not distinct from %s order by action"
        assert await run_sql(pool, entries, org) == left
    for org in orgs:
        totals = "select action, total from audit_totals where org_id = %s and total <> 0 order by action"
        assert await run_sql(pool, totals, org) == [(action, 1) for action, _ in left]
        assert (await read(storage, org, AuditFilter(actions=frozenset({"security.mfa.enabled"})))).total == 0
