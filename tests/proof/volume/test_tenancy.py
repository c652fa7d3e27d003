"""Statements about invitations, members, deleted organizations and the organization list read few rows in large tables."""

from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from functools import partial
from typing import Final
from uuid import UUID

import pytest

from adapters.postgres.engine.connecting import connect
from adapters.postgres.engine.pool import Pool
from adapters.postgres.maintenance.housekeeping import SWEEPS
from adapters.postgres.repositories import Repositories
from adapters.postgres.storage import Postgres
from adapters.postgres.tenancy.organizations import PAGE_WITH_OWNERS
from core.kernel.callers import OrganizationStatus
from core.kernel.values import Page
from core.maintenance.model.housekeeping import Sweep
from core.tenancy.model.invitations import InvitationStatus
from core.tenancy.model.members import MemberFilter, MemberOrder
from ports.signals import NoSignals
from tests.proof.volume.plans import PLAN_MODES, count_reads, filled_database, plan_nodes, rows_of, without_foreign_keys
from tests.support.builders import make_vault, run_sql
from tests.support.rows import DAY, NOW
from tests.tenancy.storage.records import records_of

pytestmark = pytest.mark.slow

ALL = Page(1, 50)
PENDING, EXPIRED = InvitationStatus.PENDING, InvitationStatus.EXPIRED

# Many invitations. In one organization nearly all have ended. The few pending invitations must be
# found as quickly.

ORG = UUID(int=1)
INSERTS: Final = """
    insert into invitations (id, org_id, email, role, invited_by, status, token_hash, expires_at, created_at, ended_at)
    select gen_random_uuid(), case when mod(n, 4) = 0 then %(org)s else md5(mod(n, 100)::text)::uuid end, n || '@example.com', 'member',
           gen_random_uuid(), status, decode(md5(n::text), 'hex'), %(now)s + (n - 11990) * interval '1 second',
           %(now)s - n * interval '1 second', case when status = 'pending' then null else %(now)s end
    from generate_series(1, 12000) n, lateral (
        select case when n > 11980 then 'pending' when n > 11960 then 'accepted' when mod(n, 8) = 0 then 'rejected' else 'expired' end
        as status) s"""
TOTALS = {None: 3000, PENDING: 3, EXPIRED: 1497, InvitationStatus.ACCEPTED: 5, InvitationStatus.REJECTED: 1495}


@pytest.fixture(scope="module")
def large_database(server: str) -> Iterator[str]:
    """A filled database for both plan modes."""
    with filled_database(server, INSERTS, {"org": ORG, "now": NOW}, "invitations") as conninfo:
        yield conninfo


@pytest.mark.parametrize("mode", PLAN_MODES)
async def test_a_page_of_many_invitations_reads_few_other_rows(large_database: str, mode: str) -> None:
    async with await connect(large_database, timeout=5) as connection:
        invitations = Repositories(connection, make_vault(), NoSignals()).invitations
        for status in (None, *InvitationStatus):
            listed, reads = await count_reads(connection, mode, partial(invitations.page, ORG, status, ALL, NOW))
            total = TOTALS.get(status, 0)
            assert (listed.total, len(listed.items)) == (total, min(total, 50)), status
            assert "invitations" not in reads.scans, status
            assert reads.rows["invitations"] <= 100, status


async def rows_read(pool: Pool, mode: str, limit: int) -> float:
    """Run a sweep, and return how many audit entries and events it read."""
    nodes = await plan_nodes(pool, SWEEPS[Sweep.DELETED_ORGANIZATIONS], {"limit": limit, "before": NOW}, mode)
    return sum(rows_of(node) for node in nodes if node.get("Relation Name") in ("audit_log", "events"))


# A log with 100 entries about a deleted organization, per plan mode.
GONE = {mode: UUID(int=number) for number, mode in enumerate(PLAN_MODES)}
LOGS: Final = """
    create temporary table numbers as
    select case when n <= 200 then (%(gone)s::uuid[])[1 + mod(n, 2)]
                else ('00000000-0000-4000-9000-' || lpad(mod(n, %(others)s)::text, 12, '0'))::uuid end as org, now() as at
    from generate_series(1, 30200) n;
    insert into audit_log (id, org_id, action, target_type, target_id, details, created_at)
    select gen_random_uuid(), org, 'x', 'user', 'x', '{}', at from numbers;
    insert into events (id, org_id, name, target_id, data, created_at)
    select gen_random_uuid(), org, 'x', 'x', '{}', at from numbers"""


@pytest.fixture(scope="module", params=[1, 30])
def large_logs(server: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """The logs of a single organization or of 30, and the deleted organizations' logs."""
    with filled_database(server, LOGS, {"gone": list(GONE.values()), "others": request.param}, "audit_log", "events") as conninfo:
        yield conninfo


@pytest.fixture
async def pool_of_logs(large_logs: str) -> AsyncIterator[Pool]:
    opened = Pool(large_logs, size=2)
    yield opened
    await opened.aclose()


@pytest.mark.parametrize("mode", PLAN_MODES)
async def test_a_sweep_finds_few_records_without_reading_the_whole_log(pool_of_logs: Pool, mode: str) -> None:
    """A planner that expects many records about an organization reads the whole log every time."""
    pool, gone = pool_of_logs, GONE[mode]
    assert await records_of(pool, gone) == [100, 100, 0]
    await run_sql(pool, "insert into deleted_organizations (id, deleted_at) values (%s, %s)", gone, NOW - DAY)
    assert await rows_read(pool, mode, 80) <= 300
    assert await rows_read(pool, mode, 1000) <= 400
    assert await records_of(pool, gone) == [0, 0, 0]
    assert await rows_read(pool, mode, 1000) == 0


async def test_a_page_of_ten_thousand_organizations_reads_only_its_own_members(storage: Postgres, pool: Pool) -> None:
    async with without_foreign_keys(pool) as connection:
        await connection.execute(
            """
            insert into users (id, email, is_platform_owner, origin, created_at, updated_at)
            select gen_random_uuid(), n || '@example.com', false, 'platform', now(), now() from generate_series(1, 10000) n"""
        )
        await connection.execute(
            """
            with added as (
                insert into organizations (id, slug, name, status, tier_id, created_at, updated_at)
                select gen_random_uuid(), 'o' || n, 'O', case when mod(n, 100) = 0 then 'pending' else 'active' end, tiers.id,
                       %s - n * interval '1 minute', now()
                from generate_series(1, 10000) n, tiers where tiers.name = 'free'
                returning id, slug)
            insert into memberships (id, org_id, user_id, email, role, created_at)
            select gen_random_uuid(), added.id, u.id, u.email, 'owner', now()
            from added join users u on u.email = substr(added.slug, 2) || '@example.com'""",
            (NOW,),
        )
        # One organization is large.
        await connection.execute(
            """
            insert into memberships (id, org_id, user_id, email, role, created_at)
            select gen_random_uuid(), o.id, u.id, u.email, 'member', now()
            from organizations o, users u where o.slug = 'o1' and u.email <> '1@example.com'"""
        )
    await run_sql(pool, "analyze users, organizations, memberships, tiers")
    for mode in PLAN_MODES:
        for status in (None, "pending"):
            nodes = await plan_nodes(
                pool, PAGE_WITH_OWNERS, {"status": status, "tier_id": None, "search": None, "limit": 50, "offset": 0}, mode
            )
            users, members = (
                sum(rows_of(node) for node in nodes if node.get("Relation Name") == table) for table in ("users", "memberships")
            )
            assert users <= 50, (mode, status)
            # If most organizations have few members, the member index costs as much as the owner
            # index. With it, the statement reads the large organization's members until it finds
            # the owner.
            assert members <= 10_000 + 50, (mode, status)
            if status is None:
                assert [node["Actual Rows"] for node in nodes if node["Node Type"] == "Sort"] == [50], mode
                [page] = [node for node in nodes if node.get("Index Name") == "organizations_by_age"]
                assert page["Actual Rows"] == 50
    async with storage.reading() as read:
        listed = await read.organizations.page_with_owners(None, None, 50, 0)
        last = await read.organizations.page_with_owners(None, None, 50, 9_990)
        pending = await read.organizations.page_with_owners(OrganizationStatus.PENDING, None, 50, 50)
    assert [(one.organization.slug, one.owner.email) for one in listed.items] == [(f"o{n}", f"{n}@example.com") for n in range(1, 51)]
    assert listed.items[0].organization.created_at == NOW - timedelta(minutes=1)
    assert [one.organization.slug for one in last.items] == [f"o{n}" for n in range(9_991, 10_001)]
    assert [one.organization.slug for one in pending.items] == [f"o{n}" for n in range(5_100, 10_001, 100)]
    assert (listed.total, last.total, pending.total) == (10_000, 10_000, 100)


# A list with 20,000 members that begins with the newest among 20,000 invitations.

CROWD = UUID(int=2)
A_MEMBER = UUID(int=17_777)
CROWD_INSERTS: Final = """
    insert into organizations (id, slug, name, status, created_at, updated_at, member_count)
    values (%(crowd)s, 'crowd', 'Crowd', 'active', %(now)s, %(now)s, 20000);
    insert into users (id, email, is_platform_owner, origin, created_at, updated_at)
    select lpad(to_hex(n), 32, '0')::uuid, n || '@example.com', false, 'platform', %(now)s, %(now)s from generate_series(1, 20000) n;
    insert into memberships (id, org_id, user_id, email, role, created_at, confirmed_at)
    select gen_random_uuid(), %(crowd)s, lpad(to_hex(n), 32, '0')::uuid, n || '@example.com',
           case when mod(n, 1000) = 0 then 'admin' else 'member' end, %(now)s - n * interval '1 second', %(now)s
    from generate_series(1, 20000) n;
    insert into invitations (id, org_id, email, role, invited_by, status, token_hash, expires_at, created_at, ended_at)
    select gen_random_uuid(), %(crowd)s, n || '@example.com', 'member', lpad(to_hex(1), 32, '0')::uuid,
           case when mod(n, 2) = 0 then 'pending' else 'accepted' end, decode(md5(n::text), 'hex'), %(now)s + interval '1 day',
           %(now)s - n * interval '1 minute', case when mod(n, 2) = 1 then %(now)s - n * interval '1 second' end
    from generate_series(1, 20000) n"""


@pytest.fixture(scope="module")
def crowd(server: str) -> Iterator[str]:
    parameters = {"crowd": CROWD, "now": NOW}
    with filled_database(server, CROWD_INSERTS, parameters, "organizations", "users", "memberships", "invitations") as conninfo:
        yield conninfo


@pytest.mark.parametrize("mode", PLAN_MODES)
async def test_the_list_of_many_members_reads_few_rows(crowd: str, mode: str) -> None:
    async with await connect(crowd, timeout=5) as connection:
        repositories = Repositories(connection, make_vault(), NoSignals())
        members, invitations = repositories.members, repositories.invitations
        for order in MemberOrder:
            listed, reads = await count_reads(connection, mode, partial(members.page, CROWD, MemberFilter(), ALL, order=order))
            assert listed is not None
            assert (listed.total, len(listed.members), reads.scans.keys() & {"memberships", "users"}) == (20_000, 50, set()), order
            assert (reads.rows["memberships"] <= 100, reads.rows["users"] <= 100) == (True, True), (order, reads)
            user_ids = [member.user_id for member in listed.members]
        accounts, reads = await count_reads(connection, mode, partial(members.accounts, CROWD, user_ids))
        assert (len(accounts), reads.rows["memberships"] <= 100, reads.rows["users"] <= 100) == (50, True, True), reads
        pending, reads = await count_reads(connection, mode, partial(invitations.page, CROWD, PENDING, Page(1, 10), NOW))
        assert (pending.total, len(pending.items), reads.rows["users"] <= 10) == (10_000, 10, True), reads
        accepted, reads = await count_reads(connection, mode, partial(invitations.accepted_by, CROWD, A_MEMBER))
        assert (accepted.inviter.email if accepted else None, reads.rows["invitations"] <= 2) == ("1@example.com", True), reads
        ids = [each.invitation.id for each in pending.items]
        selected, reads = await count_reads(connection, mode, partial(invitations.pending_of, CROWD, ids))
        assert (len(selected), reads.rows["invitations"] <= 20) == (10, True), reads
