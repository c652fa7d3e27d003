"""Statements about audit logs, webhook deliveries and SIEM queues read few rows in large tables."""

from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final
from uuid import UUID, uuid4

import pytest

from adapters.postgres.engine.connecting import connect
from adapters.postgres.engine.pool import Pool
from adapters.postgres.engine.statements import Scope
from adapters.postgres.eventing.audit import Audit
from adapters.postgres.eventing.deliveries import CLAIM as CLAIM_DELIVERIES
from adapters.postgres.eventing.deliveries import Deliveries
from adapters.postgres.eventing.siem import CLAIM as CLAIM_QUEUE
from adapters.postgres.eventing.siem import WAITING
from adapters.postgres.maintenance.housekeeping import SWEEPS
from core.eventing import deliveries
from core.eventing.model.audit import ANONYMOUS, AuditFilter
from core.eventing.model.audit import SYSTEM as SYSTEM_ACTOR
from core.eventing.model.siem import MAX_BYTES
from core.eventing.model.webhooks import RECENT, DispatchCapacity
from core.kernel.values import Page
from core.maintenance.model.housekeeping import Sweep
from ports import Ports
from ports.signals import NoSignals
from tests.proof.volume.plans import PLAN_MODES, count_reads, filled_database, plan_nodes, rows_of
from tests.support.builders import add_organization, make_vault, run_sql
from tests.support.rows import DAY, NOW
from tests.support.siem import configure, fill_queue, make_sink, record, remove_configuration
from tests.support.webhooks import add_webhook, happen

pytestmark = pytest.mark.slow

FIRST = Page(1, 50)
FIRST_CENTURY = datetime(99, 1, 1, tzinfo=UTC)
URL = "https://hooks.example/in"

# A large log. Most entries belong to the same organization. Rare entries must be found as quickly
# as frequent entries.

ORG, FREQUENT, RARE = UUID(int=1), UUID(int=2), UUID(int=3)
USER_FREQUENT, USER_RARE = ("user", str(FREQUENT)), ("user", str(RARE))
# 36,000 entries; two thirds are ORG's. FREQUENT is the actor in half of its entries. RARE is the
# actor in three of the oldest entries, so that a search in time order would read all newer entries
# first.
INSERTS: Final = """
    insert into audit_log (id, org_id, action, target_type, target_id, actor_id, address, success, details, created_at)
    select gen_random_uuid(), case when mod(n, 3) > 0 then %(org)s else md5(mod(n, 600)::text)::uuid end,
           case when is_rare then 'domain.set' when mod(n, 5) = 0 then 'plan.created' else 'user.invited' end,
           case when is_rare then 'organization' when mod(n, 5) = 0 then 'plan' else 'user' end,
           case when mod(n, 900) = 1 then 'busy' else md5(mod(n, 20000)::text) end,
           case when is_rare then %(rare)s when mod(n, 2) = 0 then %(frequent)s when mod(n, 3001) = 0 then null
                else md5(mod(n, 5000)::text)::uuid end,
           '203.0.113.9', not is_rare, '{}', now() - n * interval '1 second'
    from generate_series(1, 36000) n, lateral (select n = any(%(few)s) as is_rare) l;
    insert into audit_totals (org_id, action, target_type, total)
    select org_id, action, target_type, count(*) from audit_log group by org_id, action, target_type"""
# 15,000 entries in the platform's log: requests by a busy impersonator, and three old entries about something else.
PLATFORM_INSERTS: Final = """
    insert into audit_log (id, action, target_type, target_id, actor_id, impersonator_id, address, details, created_at)
    select gen_random_uuid(), case when is_rare then 'platform.owner.promoted' else 'impersonation.request' end, 'user',
           case when is_rare then 'rare' else md5(mod(n, 5000)::text) end, case when is_rare then %(rare)s else %(frequent)s end,
           case when not is_rare then %(frequent)s end, '203.0.113.9',
           jsonb_build_object('session_id', case when is_rare then 'rare' else md5(mod(n, 100)::text) end), now() - n * interval '1 second'
    from generate_series(1, 15000) n, lateral (select n > 14997 as is_rare) l;
"""


@pytest.fixture(scope="module")
def large_database(server: str) -> Iterator[str]:
    """A filled database for both plan modes."""
    parameters = {"org": ORG, "frequent": FREQUENT, "rare": RARE, "few": [35_996, 35_998, 35_999]}
    with filled_database(server, INSERTS + ";" + PLATFORM_INSERTS, parameters, "audit_log", "audit_totals") as conninfo:
        yield conninfo


ACTION, DOMAIN = frozenset({"user.invited"}), frozenset({"domain.set", "domain.verified", "domain.deleted"})
# How many entries match, by filter
TOTALS = {
    AuditFilter(): 24_000,
    AuditFilter(actions=ACTION): 19_197,
    AuditFilter(actions=frozenset({"domain.set"})): 3,
    AuditFilter(actions=frozenset({"plan.deleted"})): 0,
    AuditFilter(actions=DOMAIN): 3,
    AuditFilter(target_type="user"): 19_197,
    AuditFilter(target_type="organization"): 3,
    AuditFilter(target_type="service"): 0,
    AuditFilter(target_type="user", target_id="busy"): 40,
    AuditFilter(target_type="user", target_id="nothing"): 0,
    AuditFilter(actions=ACTION, target_type="user", target_id="busy"): 40,
    AuditFilter(actions=DOMAIN, target_type="organization", target_id="busy"): 0,
    AuditFilter(actor_id=FREQUENT): 11_998,
    AuditFilter(actor_id=RARE): 3,
    AuditFilter(actor_id=UUID(int=9)): 0,
    AuditFilter(actor_without_account=SYSTEM_ACTOR): 0,
    AuditFilter(actor_without_account=ANONYMOUS): 4,
    AuditFilter(actions=ACTION, actor_without_account=ANONYMOUS): 3,
    AuditFilter(actions=ACTION, actor_id=RARE): 0,
    AuditFilter(actions=DOMAIN, actor_id=RARE): 3,
    AuditFilter(target_type="user", actor_id=RARE): 0,
    AuditFilter(target_type="user", target_id="busy", actor_id=RARE): 0,
    AuditFilter(success=False): 3,
    AuditFilter(actions=DOMAIN, success=False): 3,
    AuditFilter(actions=ACTION, success=False): 0,
    AuditFilter(target_type="user", until=FIRST_CENTURY): 0,
    AuditFilter(actions=ACTION, since=FIRST_CENTURY): 10_000,
    AuditFilter(actor_id=RARE, since=FIRST_CENTURY): 3,
    # Objects that a search found
    AuditFilter(actors=frozenset({USER_RARE})): 3,
    AuditFilter(actors=frozenset({USER_RARE, USER_FREQUENT}), since=FIRST_CENTURY): 10_000,
    AuditFilter(actors=frozenset({USER_RARE}), actions=DOMAIN): 3,
    AuditFilter(targets=frozenset({("user", "busy"), ("service", "busy")})): 40,
    AuditFilter(targets=frozenset({("user", "busy")}), actors=frozenset({USER_RARE})): 0,
    AuditFilter(involved=frozenset({USER_RARE}), since=FIRST_CENTURY): 3,
    AuditFilter(involved=frozenset({USER_RARE, USER_FREQUENT})): 10_000,
    AuditFilter(involved=frozenset({USER_RARE}), targets=frozenset({("user", "busy")})): 0,
}


@pytest.mark.parametrize("mode", PLAN_MODES)
async def test_a_page_of_a_large_log_reads_few_other_rows(large_database: str, mode: str) -> None:
    async with await connect(large_database, timeout=5) as connection:
        audit = Audit(Scope(connection, make_vault(), NoSignals()))
        for filter_, total in TOTALS.items():
            listed, reads = await count_reads(connection, mode, partial(audit.page, ORG, filter_, FIRST))
            assert (listed.total, len(listed.items)) == (total, min(total, 50)), filter_
            assert "audit_log" not in reads.scans, filter_
            assert reads.rows["audit_log"] <= 200, filter_  # the page and the count for a small result
            last = listed.items[-1] if listed.items else None
            batch, reads = await count_reads(connection, mode, partial(audit.batch, ORG, filter_, last, 500))
            assert len(batch) == min(total - len(listed.items), 500) or total == 10_000, filter_
            assert reads.rows["audit_log"] <= 700, filter_


# How many entries are counted, by filter on the platform's log
PLATFORM_TOTALS = {
    AuditFilter(): 10_000,
    AuditFilter(actions=frozenset({"impersonation.request"})): 10_000,
    AuditFilter(actions=frozenset({"platform.owner.promoted", "platform.owner.demoted"})): 3,
    AuditFilter(target_type="user", target_id="rare"): 3,
    AuditFilter(actor_id=FREQUENT): 10_000,
    AuditFilter(actor_id=RARE): 3,
    AuditFilter(actors=frozenset({USER_RARE})): 3,
    AuditFilter(targets=frozenset({("user", "rare")})): 3,
    AuditFilter(involved=frozenset({USER_FREQUENT})): 10_000,
    AuditFilter(actor_without_account=ANONYMOUS): 0,
    AuditFilter(impersonator_id=FREQUENT): 10_000,
    AuditFilter(impersonator_id=RARE): 0,
    AuditFilter(session_id="rare"): 3,
    AuditFilter(actor_id=RARE, session_id="rare"): 3,
    AuditFilter(until=FIRST_CENTURY): 0,
    AuditFilter(actions=frozenset({"impersonation.request"}), until=FIRST_CENTURY): 0,
}


@pytest.mark.parametrize("mode", PLAN_MODES)
async def test_the_platforms_log_reads_few_other_rows(large_database: str, mode: str) -> None:
    async with await connect(large_database, timeout=5) as connection:
        log = Audit(Scope(connection, make_vault(), NoSignals()))
        for filter_, total in PLATFORM_TOTALS.items():
            listed, reads = await count_reads(connection, mode, partial(log.page, None, filter_, FIRST))
            assert (listed.total, len(listed.items)) == (total, min(total, 50)), filter_
            assert "audit_log" not in reads.scans, filter_
            assert reads.rows["audit_log"] <= 200, filter_  # the page; the count reads an index
            last = listed.items[-1] if listed.items else None
            batch, reads = await count_reads(connection, mode, partial(log.batch, None, filter_, last, 500))
            assert len(batch) <= 500
            assert reads.rows["audit_log"] <= 700, filter_


# 60,000 accounts: half of them use ORG's applications, and ten are its members. LARGE has 10,000 members.
PEOPLE: Final = """
    insert into users (id, email, origin, name, created_at, updated_at)
    select md5(n::text)::uuid, 'person-' || n || '@example.com', 'platform', 'Person Number' || n, now(), now()
    from generate_series(1, 60000) n;
    insert into end_users (org_id, user_id, email, deactivated, created_at)
    select %(org)s, md5(n::text)::uuid, 'person-' || n || '@example.com', false, now() from generate_series(1, 30000) n;
    insert into memberships (id, org_id, user_id, role, created_at, confirmed_at, email)
    select gen_random_uuid(), %(org)s, md5(n::text)::uuid, 'member', now(), now(), 'person-' || n || '@example.com'
    from generate_series(50001, 50010) n;
    insert into memberships (id, org_id, user_id, role, created_at, confirmed_at, email)
    select gen_random_uuid(), %(large)s, md5(n::text)::uuid, 'member', now(), now(), 'person-' || n || '@example.com'
    from generate_series(10001, 20000) n;
    insert into organizations (id, slug, name, status, created_at, updated_at, member_count)
    values (%(org)s, 'acme', 'Acme', 'active', now(), now(), 10), (%(large)s, 'large', 'Large', 'active', now(), now(), 10000)"""
LARGE = UUID(int=4)


@pytest.fixture(scope="module")
def many_people(server: str) -> Iterator[str]:
    with filled_database(server, PEOPLE, {"org": ORG, "large": LARGE}, "users", "end_users", "memberships") as conninfo:
        yield conninfo


@pytest.mark.parametrize("mode", PLAN_MODES)
async def test_names_are_found_among_many_people_by_index(many_people: str, mode: str) -> None:
    async with await connect(many_people, timeout=5) as connection:
        audit = Audit(Scope(connection, make_vault(), NoSignals()))
        for text, size in (("person-29999@", 1), ("number50007", 1), ("person", 101), ("number50", 10), ("number29999", 0), ("nobody", 0)):
            keys, reads = await count_reads(connection, mode, partial(audit.find_objects, ORG, text, 101))
            assert len(keys) == size, text
            assert not reads.scans.keys() & {"users", "end_users"}, text
            assert reads.rows.total() <= 250, text
        for text, size in (("person-15000@", 1), ("number15000", 1), ("person", 101), ("number29999", 0)):
            keys, reads = await count_reads(connection, mode, partial(audit.find_objects, LARGE, text, 101))
            assert len(keys) == size, text
            assert not reads.scans.keys() & {"users", "end_users"}, text
            assert reads.rows["users"] <= 11_000 if text == "person" else reads.rows["users"] <= 20, text
        for text in ("person-29999@example.com", "number29999"):
            keys, reads = await count_reads(connection, mode, partial(audit.find_objects, None, text, 101))
            assert len(keys) == 1, text
            assert reads.rows["users"] <= 10, text
        ids = [key[1] for key in await audit.find_objects(ORG, "person", 50)]
        names, reads = await count_reads(connection, mode, partial(audit.names, ORG, {"user": ids}))
        assert len(names) == 50
        assert not reads.scans.keys() & {"users", "end_users"}
        assert reads.rows.total() <= 250


@pytest.mark.parametrize("mode", PLAN_MODES)
async def test_a_claim_reads_few_rows_of_a_large_backlog(ports: Ports, pool: Pool, mode: str) -> None:
    dead, org = [await add_organization(pool, slug) for slug in ("dead", "acme")]
    hook = await add_webhook(ports, dead, URL)
    await add_webhook(ports, org, URL)
    fill = """
        insert into webhook_deliveries (id, org_id, webhook_id, event_type, payload, status, due_at, created_at, updated_at)
        select gen_random_uuid(), %s, %s, 'user.invited', '{}', 'due', %s, %s, %s from generate_series(1, 30000)"""
    await run_sql(pool, fill, dead, hook.id, NOW - DAY, NOW - DAY, NOW - DAY)
    await happen(ports, org)
    await run_sql(pool, "analyze webhook_deliveries")
    nothing: dict[str, object] = {"organizations": [], "of_organizations": [], "receivers": [], "of_receivers": []}
    nodes = await plan_nodes(pool, CLAIM_DELIVERIES, {"now": NOW, "lease_until": NOW, "free": 100, **nothing}, mode)
    assert sum(rows_of(node) for node in nodes if node.get("Relation Name") == "webhook_deliveries") < 200


@pytest.mark.parametrize("mode", PLAN_MODES)
async def test_statements_read_few_rows_of_a_large_history(ports: Ports, pool: Pool, mode: str) -> None:
    org, other = [await add_organization(pool, slug) for slug in ("acme", "other")]
    hook, _ = await add_webhook(ports, org, URL), await add_webhook(ports, other, URL)
    fill = """
        insert into webhook_deliveries (id, org_id, webhook_id, event_type, payload, status, due_at, delivered, created_at, updated_at,
            attempt_count)
        select gen_random_uuid(), %s, %s, case when n %% 50 = 0 then 'user.removed' else 'user.invited' end, '{}', 'done', %s,
               n %% 70 <> 0, %s + n * interval '1 second', %s + n * interval '1 second', 1
        from generate_series(1, %s) n"""
    for id_, webhook_id, count in ((org, hook.id, 300), (other, uuid4(), 40_000)):
        await run_sql(pool, fill, id_, webhook_id, NOW, NOW, NOW, count)
    await happen(ports, other, 30)
    await deliveries.record_and_claim(ports, [], DispatchCapacity.remaining(100, []))
    await run_sql(pool, "analyze webhook_deliveries")
    now, page = ports.clock.now(), Page(1, 20)
    [(delivery_id,)] = await run_sql(pool, "select id from webhook_deliveries where status = 'done' limit 1")

    async def rows_read_by(act: Callable[[Deliveries], Awaitable[object]]) -> int:
        async with pool.connection() as connection:
            repository = Deliveries(Scope(connection, make_vault(), NoSignals()))
            _, reads = await count_reads(connection, mode, partial(act, repository))
        return reads.rows["webhook_deliveries"]

    # A webhook's deliveries are counted, and some are returned. No other rows are read, whatever
    # the plan is.
    assert await rows_read_by(lambda repository: repository.page(org, hook.id, page, event_type="user.removed", delivered=None)) <= 2 * 300
    assert await rows_read_by(lambda repository: repository.page(org, hook.id, page, event_type=None, delivered=False)) <= 2 * 300
    assert await rows_read_by(lambda repository: repository.page(org, hook.id, page, event_type=None, delivered=None)) <= 2 * 300
    assert await rows_read_by(lambda repository: repository.add_copy(org, hook.id, delivery_id, uuid4(), now)) <= 1
    assert await rows_read_by(lambda repository: repository.health(org, [hook.id])) <= 2 * RECENT
    assert await rows_read_by(lambda repository: repository.count_to_resend(org, hook.id, None)) <= 10
    assert await rows_read_by(lambda repository: repository.resend(org, hook.id, None, now)) <= 30
    assert await rows_read_by(lambda repository: repository.wake(now + DAY, 10)) <= 40
    assert await rows_read_by(lambda repository: repository.purge(hook.id, 10)) <= 30


@pytest.mark.parametrize("mode", PLAN_MODES)
async def test_checking_for_an_empty_queue_reads_few_rows_of_a_large_one(ports: Ports, pool: Pool, mode: str) -> None:
    acme, other_tenant = [await add_organization(pool, slug) for slug in ("acme", "twin")]
    for org in (acme, other_tenant):
        await configure(ports, make_sink(org))
    await fill_queue(pool, acme, 10_000)
    await run_sql(pool, "analyze siem_queue, siem_configurations, organizations")

    async def rows_read(statement: str, **parameters: Any) -> float:
        nodes = await plan_nodes(pool, statement, parameters, mode)
        return sum(rows_of(node) for node in nodes if node.get("Relation Name") == "siem_queue")

    assert await rows_read(CLAIM_QUEUE, now=NOW, leased_until=NOW, struggling=True) <= 2
    [(siem_id,)] = await run_sql(pool, "select id from siem_configurations where org_id = %s", acme)
    assert await rows_read(WAITING, org_id=acme, siem_id=siem_id, limit=10, most_bytes=MAX_BYTES) == 10
    assert await rows_read(SWEEPS[Sweep.SIEM_QUEUES], before=NOW, limit=10) == 0
    # This queue's entries do not exist, which counts as old. In any other queue, the sweep reads a
    # single row.
    assert await rows_read(SWEEPS[Sweep.SIEM_BACKLOGS], before=NOW, limit=10) <= 40
    await record(ports, other_tenant, "young")
    await remove_configuration(ports.storage, acme)
    assert await rows_read(SWEEPS[Sweep.SIEM_BACKLOGS], before=NOW - DAY, limit=10) <= 1
    assert await rows_read(SWEEPS[Sweep.SIEM_QUEUES], before=NOW, limit=10) <= 30
