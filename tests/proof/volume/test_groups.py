"""Groups with 100,000 users: changing 1,000 users, and deciding about access, read as many rows as in an empty group."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from adapters.postgres.engine.connecting import connect
from adapters.postgres.repositories import Repositories
from core.kernel.roles import ADMIN, rights_of
from core.kernel.values import Page
from ports.signals import NoSignals
from tests.proof.volume.plans import PLAN_MODES, count_reads, filled_database
from tests.support.builders import make_vault

pytestmark = pytest.mark.slow

SIZE, CHANGED = 100_000, 1000
ORG, OTHER, LARGE, EMPTY, FOREIGN, SERVICE = [UUID(int=number) for number in range(1, 7)]
NOW = datetime(2026, 3, 14, tzinfo=UTC)
WATCHED = {"group_members", "users", "memberships", "scim_users"}
# The users with numbers up to SIZE are in the large group, and the next users in none.
INSERTS = """
    insert into users (id, email, origin, origin_org_id, created_at, updated_at)
    select md5('u' || n)::uuid, 'person-' || n || '@example.com', 'scim', %(org)s, now(), now() from generate_series(1, %(size)s + 2000) n;
    insert into organizations (id, slug, name, status, created_at, updated_at) values
        (%(org)s, 'acme', 'Acme', 'active', now(), now()), (%(other)s, 'other', 'Other', 'active', now(), now());
    insert into services (id, org_id, slug, name, service_type, client_id, redirect_uris, access_policy, created_at, updated_at)
    values (%(service)s, %(org)s, 'shop', 'Shop', 'mobile', gen_random_uuid(), '{}', 'assigned', now(), now());
    insert into memberships (id, org_id, user_id, role, email, created_at, confirmed_at)
    select gen_random_uuid(), %(org)s, id, 'member', email, now(), now() from users;
    insert into scim_users (org_id, user_id, provisioned, updated_at) select %(org)s, id, true, now() from users;
    insert into groups (id, org_id, name, name_key, member_count, created_at, updated_at, members_changed_at)
    select id, org_id, name, name, members, now(), now(), now()
    from (values (%(large)s, %(org)s, 'large', %(size)s), (%(empty)s, %(org)s, 'empty', 0), (%(foreign)s, %(other)s, 'foreign', %(size)s))
        g (id, org_id, name, members);
    insert into group_members (org_id, group_id, user_id, added_at)
    select %(org)s, %(large)s, md5('u' || n)::uuid, now() from generate_series(1, %(size)s) n
    union all select %(other)s, %(foreign)s, md5('u' || n)::uuid, now() from generate_series(1, %(size)s) n;
    insert into service_groups_assigned (org_id, service_id, group_id, assigned_at) values
        (%(org)s, %(service)s, %(large)s, now()), (%(org)s, %(service)s, %(empty)s, now())"""


@pytest.fixture(scope="module")
def large_database(server: str) -> Iterator[str]:
    names = {"size": SIZE, "org": ORG, "other": OTHER, "large": LARGE, "empty": EMPTY, "foreign": FOREIGN, "service": SERVICE}
    with filled_database(server, INSERTS, names, *sorted(WATCHED), "groups", "services", "service_groups_assigned") as conninfo:
        yield conninfo


async def _users(connection: Any, first: int) -> list[UUID]:
    sql = "select md5('u' || n)::uuid from generate_series(%(first)s::int, %(first)s::int + %(count)s::int - 1) n"
    return [row[0] for row in await connection.rows(sql, {"first": first, "count": CHANGED})]


@pytest.mark.parametrize("mode", PLAN_MODES)
async def test_a_change_of_a_thousand_users_reads_the_same_rows_in_a_large_and_in_an_empty_group(large_database: str, mode: str) -> None:
    async with await connect(large_database, timeout=30) as connection:
        repositories = Repositories(connection, make_vault(), NoSignals())
        groups, sessions = repositories.groups, repositories.organization_sessions
        newcomers, present = await _users(connection, SIZE + 1), await _users(connection, 1)

        def steps(group: UUID, leaving: Sequence[UUID]) -> dict[str, Callable[[], Awaitable[Any]]]:
            return {
                "by_id": partial(groups.by_id, ORG, group),
                "present": partial(groups.present, ORG, group, newcomers),
                "assignable": partial(repositories.assignments.assignable, ORG, newcomers),
                "known": partial(repositories.scim_users.group_members, ORG, newcomers),
                "lock": partial(repositories.scim_users.lock, ORG, newcomers),
                "add": partial(groups.add_members, ORG, group, newcomers, NOW),
                "remove": partial(groups.remove_members, ORG, group, leaving, NOW),
                "services": partial(repositories.assignments.services_of_group, ORG, group),
                "end": partial(sessions.end_without_access, ORG, [SERVICE], newcomers, NOW),
                "groups of users": partial(groups.with_members, ORG, present),
                "names": partial(groups.same_names, ORG, "another"),
                "first page": partial(groups.members, ORG, group, Page(1, 50)),
                "first ids": partial(groups.member_ids, ORG, group, None, 2000),
            }

        for (name, in_large), in_empty in zip(steps(LARGE, present).items(), steps(EMPTY, []).values(), strict=True):
            _, large = await count_reads(connection, mode, in_large)
            _, empty = await count_reads(connection, mode, in_empty)
            assert not large.scans.keys() & WATCHED, (name, large)
            assert large.rows.total() <= 8 * CHANGED, (name, large)
            if name not in ("remove", "first page", "first ids"):  # an empty group has nothing to remove or to read
                assert large.rows.total() <= 2 * empty.rows.total() + 20, (name, large, empty)


@pytest.mark.parametrize("mode", PLAN_MODES)
async def test_access_by_a_large_group_reads_few_rows(large_database: str, mode: str) -> None:
    async with await connect(large_database, timeout=30) as connection:
        repositories = Repositories(connection, make_vault(), NoSignals())
        [member], [stranger] = (await _users(connection, 77))[:1], (await _users(connection, SIZE + 77))[:1]
        for user, expected in ((member, True), (stranger, False)):
            may_use, reads = await count_reads(connection, mode, partial(repositories.end_users.may_use, ORG, SERVICE, user, NOW))
            assert may_use is expected
            assert not reads.scans.keys() & WATCHED
            assert reads.rows.total() <= 20
            own, reads = await count_reads(connection, mode, partial(repositories.own_applications.of_user, user, 100, NOW))
            assert [each.slug for each in own] == (["shop"] if expected else [])
            assert not reads.scans.keys() & WATCHED
            assert reads.rows.total() <= 40


@pytest.mark.parametrize("mode", PLAN_MODES)
async def test_the_end_of_a_membership_reads_the_groups_of_the_user(large_database: str, mode: str) -> None:
    async with await connect(large_database, timeout=30) as connection:
        groups = Repositories(connection, make_vault(), NoSignals()).groups
        [user, *_] = await _users(connection, 5)

        async def leave() -> None:
            await groups.remove_former_members(ORG, [user])
            await connection.send()

        _, reads = await count_reads(connection, mode, leave)
        assert not reads.scans.keys() & WATCHED
        assert reads.rows.total() <= 20


@pytest.mark.parametrize("mode", PLAN_MODES)
async def test_power_over_a_large_group_reads_its_members_with_further_rights(large_database: str, mode: str) -> None:
    """A member is read per own role, and per group with a role."""
    async with await connect(large_database, timeout=60) as connection:
        group_roles = Repositories(connection, make_vault(), NoSignals()).group_roles
        for mapped in (False, True):  # the group itself, too
            if mapped:
                await connection.run("update groups set role = 'admin', mapped_at = now() where id = %(id)s", {"id": LARGE})
                await connection.run("update organizations set maps_groups = true where id = %(org)s", {"org": ORG})
            found, reads = await count_reads(connection, mode, partial(group_roles.authorities, ORG, [LARGE]))
            of_role, reads_of_role = await count_reads(connection, mode, partial(group_roles.authorities, ORG, [], role=ADMIN))
            assert not of_role, "no member is an admin by an own role"
            assert not reads_of_role.scans.keys() & WATCHED, reads_of_role
            assert reads_of_role.rows.total() <= 100, reads_of_role
            assert [authority.rights == rights_of(ADMIN) for authority in found] == ([False, True] if mapped else [False])
            assert not reads.scans.keys() & WATCHED, reads
            assert reads.rows.total() <= 100, reads
        await connection.run("update groups set role = null, mapped_at = null where id = %(id)s", {"id": LARGE})
        await connection.run("update organizations set maps_groups = false where id = %(org)s", {"org": ORG})
