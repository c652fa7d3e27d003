"""Storage for memberships: every field, order, lock and the count, in a single organization only."""

from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
import trio

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.kernel.causes import SYSTEM
from core.kernel.roles import ADMIN, MEMBER, OWNER, ROLES, RoleName, rights_of
from core.kernel.values import Email, Page, new_id
from core.tenancy.model.members import AlreadyMember, ListedMember, MemberFilter, MemberOrder, MembersPage, MemberState
from core.tenancy.model.organizations import Limit, LimitSource, Membership
from tests.support.builders import add_organization, run_concurrently, run_sql
from tests.support.rows import ADA, EVE, HOUR, NOW, SECOND, account, add, is_locked, until_blocked, within

ALL = Page(1, 50)


def membership(org: UUID, user: UUID, role: RoleName = MEMBER, **changes: Any) -> Membership:
    rights = rights_of(role)
    default = Membership(id=uuid4(), org_id=org, user_id=user, role=role, created_at=NOW - HOUR, confirmed_at=NOW, rights=rights)
    return replace(default, **changes)


async def join(storage: Postgres, *memberships: Membership) -> None:
    async with storage.transaction(by=SYSTEM) as tx:
        for one in memberships:
            await tx.members.add(one)


async def listed(storage: Postgres, org: UUID, role: RoleName | None, page: Page) -> tuple[list[Membership], int]:
    """Return the memberships on a page and its total."""
    async with storage.reading() as read:
        result = await read.members.page(org, MemberFilter(role), page)
    assert result is not None
    return [member.membership for member in result.members], result.total


async def count_of(pool: Pool, org: UUID) -> tuple[int, int]:
    """Return the stored member count and how many memberships there are."""
    [(counter, actual)] = await run_sql(
        pool, "select member_count, (select count(*) from memberships m where m.org_id = o.id) from organizations o where o.id = %s", org
    )
    return counter, actual


async def all_rows(pool: Pool) -> set[tuple[Any, ...]]:
    return set(await run_sql(pool, "select id, org_id, user_id, role, created_at, confirmed_at from memberships"))


async def test_a_search_and_an_order_go_by_the_current_address(storage: Postgres, pool: Pool) -> None:
    acme, globex = await add_organization(pool, "acme"), await add_organization(pool, "globex")
    ada, eve = await add(storage, account()), await add(storage, account(email=EVE))
    await join(storage, membership(acme, ada.id), membership(acme, eve.id, created_at=NOW - 2 * HOUR), membership(globex, ada.id))

    async def found(search: str | None = None, order: MemberOrder = MemberOrder.JOINED, page: Page = ALL) -> tuple[list[UUID], int]:
        async with storage.reading() as read:
            result = await read.members.page(acme, MemberFilter(search=search), page, order=order)
        assert result is not None
        return [member.user_id for member in result.members], result.total

    assert await found() == ([eve.id, ada.id], 2)
    assert await found(order=MemberOrder.EMAIL) == ([ada.id, eve.id], 2)
    assert await found("eve@") == ([eve.id], 1)
    assert await found("example", page=Page(2, 1)) == ([ada.id], 2)
    assert await found("100%") == ([], 0)
    assert await found(str(eve.id)) == ([eve.id], 1)
    assert await found(str(new_id())) == ([], 0)
    await run_sql(pool, "update users set email = 'zoe@example.com' where id = %s", ada.id)
    assert await found("zoe") == ([ada.id], 1)
    assert await found(order=MemberOrder.EMAIL) == ([eve.id, ada.id], 2)


async def test_a_member_who_joins_during_a_change_of_the_address_is_found_by_the_new_one(storage: Postgres, pool: Pool) -> None:
    org, user = await add_organization(pool, "acme"), await add(storage, account())
    async with trio.open_nursery() as nursery, storage.transaction(by=SYSTEM) as tx:
        await tx.accounts.change_email(user.id, Email("new@example.com"), NOW)
        nursery.start_soon(join, storage, membership(org, user.id))
        await until_blocked(pool)
    assert await run_sql(pool, "select email from memberships") == [("new@example.com",)]


@pytest.mark.parametrize("role", list(ROLES))
async def test_every_field_of_a_membership_is_stored_and_read_back(storage: Postgres, pool: Pool, role: RoleName) -> None:
    user = await add(storage, account(is_platform_owner=role == ADMIN))
    org = await add_organization(pool, "acme")
    one = membership(org, user.id, role, confirmed_at=None if role == MEMBER else NOW - SECOND)
    await join(storage, one)
    assert await all_rows(pool) == {(one.id, org, user.id, role, NOW - HOUR, one.confirmed_at)}
    async with storage.transaction(by=SYSTEM) as tx:
        assert await tx.members.lock(org, user.id) == one
        listed = ListedMember(ADA, user.profile.name, user.is_platform_owner, one)
        expected = MembersPage([listed], 1, Limit(100, LimitSource.TIER))
        assert await tx.members.page(org, MemberFilter(), ALL) == expected
        assert await tx.members.page(org, MemberFilter(role), ALL) == expected


async def test_a_membership_is_found_by_organization_and_user_together(storage: Postgres, pool: Pool) -> None:
    await add(storage, user := account(), eve := account(EVE))
    acme, other_tenant = [await add_organization(pool, slug) for slug in ("acme", "twin")]
    await join(storage, adas_membership := membership(acme, user.id, OWNER), eves_membership := membership(other_tenant, eve.id, OWNER))
    async with storage.transaction(by=SYSTEM) as tx:
        assert await tx.members.lock(acme, user.id) == adas_membership
        assert await tx.members.lock(other_tenant, eve.id) == eves_membership
        assert await tx.members.lock(acme, eve.id) is None
        assert await tx.members.lock(other_tenant, user.id) is None
        assert await tx.members.lock(uuid4(), user.id) is None
        assert await tx.members.lock(acme, uuid4()) is None


async def test_a_page_has_the_members_of_one_organization_oldest_first(storage: Postgres, pool: Pool) -> None:
    people = [account(f"person-{number}@example.com") for number in range(7)]
    await add(storage, *people)
    acme, other_tenant = [await add_organization(pool, slug) for slug in ("acme", "twin")]
    roles = [MEMBER, ADMIN, OWNER, MEMBER, ADMIN, MEMBER]
    # The sixth is the oldest. Two have the same time, so their ids decide.
    ages = [NOW - 5 * SECOND, NOW - 4 * SECOND, NOW - 3 * SECOND, NOW - 2 * SECOND, NOW - 2 * SECOND, NOW - 6 * SECOND]
    memberships = [membership(acme, people[n].id, roles[n], created_at=ages[n]) for n in range(6)]
    await join(storage, *memberships, *(membership(other_tenant, person.id, ADMIN) for person in people))
    expected = sorted(memberships, key=lambda one: (one.created_at, one.id.bytes))
    for number, of_page in ((1, expected[:4]), (2, expected[4:]), (3, []), (2**31 - 1, [])):
        assert await listed(storage, acme, None, Page(number, 4)) == (of_page, 6)
    for role in ROLES:
        of_role = [one for one in expected if one.role == role]
        assert await listed(storage, acme, role, ALL) == (of_role, len(of_role))
        assert await listed(storage, acme, role, Page(2, 1)) == (of_role[1:2], len(of_role))
    emails = {person.id: person.email for person in people}
    async with storage.reading() as read:
        page = await read.members.page(acme, MemberFilter(), ALL)
        assert page is not None
        for member in page.members:
            assert (member.user_id, member.email) == (member.membership.user_id, emails[member.user_id])
        assert await read.members.page(uuid4(), MemberFilter(), ALL) is None


async def test_a_page_has_the_members_in_a_state(storage: Postgres, pool: Pool) -> None:
    people = [account(f"person-{number}@example.com") for number in range(4)]
    await add(storage, *people)
    acme, other_tenant = await add_organization(pool, "acme"), await add_organization(pool, "twin")
    roles, confirmed = [OWNER, MEMBER, ADMIN, ADMIN], [NOW, NOW, None, NOW]
    joined = [membership(acme, people[n].id, roles[n], confirmed_at=confirmed[n], created_at=NOW + n * SECOND) for n in range(4)]
    await join(storage, *joined, *(membership(other_tenant, person.id, ADMIN, confirmed_at=NOW) for person in people))
    await run_sql(pool, "update users set mfa_enabled_at = now() where id = %s", people[3].id)
    expected = {
        MemberState.UNCONFIRMED: [joined[2]],
        MemberState.WITHOUT_MFA: [joined[0], joined[1]],
        MemberState.ADMINS_WITHOUT_MFA: [joined[0]],
    }
    async with storage.reading() as read:
        for state, of_state in expected.items():
            page = await read.members.page(acme, MemberFilter(state=state), ALL)
            assert page is not None
            assert ([member.membership for member in page.members], page.total) == (of_state, len(of_state))
        accounts = await read.members.accounts(acme, [person.id for person in people])
        assert await read.members.accounts_of(acme, [account.member for account in accounts.values()]) == accounts
        assert {user_id: account.mfa_enabled for user_id, account in accounts.items()} == {
            people[0].id: False,
            people[1].id: False,
            people[2].id: None,
            people[3].id: True,
        }


async def test_a_page_has_the_total_of_its_own_organization(storage: Postgres, pool: Pool) -> None:
    people = [account(f"person-{number}@example.com") for number in range(5)]
    await add(storage, *people)
    acme, other_tenant, empty = [await add_organization(pool, slug) for slug in ("acme", "twin", "empty")]
    roles = [OWNER, ADMIN, ADMIN, MEMBER, MEMBER]
    await join(storage, *(membership(acme, person.id, role) for person, role in zip(people, roles, strict=True)))
    await join(storage, *(membership(other_tenant, person.id) for person in people))
    for org, expected in ((acme, [1, 2, 2, 5]), (other_tenant, [0, 0, 5, 5]), (empty, [0, 0, 0, 0])):
        assert [(await listed(storage, org, role, Page(9, 1)))[1] for role in (*ROLES, None)] == expected


async def test_a_page_has_the_limit_of_the_organization_or_its_tier(storage: Postgres, pool: Pool) -> None:
    acme = await add_organization(pool, "acme")
    await run_sql(pool, "update organizations set tier_id = (select id from tiers order by default_max_users desc limit 1)")
    [(of_tier,)] = await run_sql(pool, "select max(default_max_users) from tiers")
    for own, expected in ((None, Limit(of_tier, LimitSource.TIER)), (3, Limit(3, LimitSource.ORGANIZATION))):
        await run_sql(pool, "update organizations set max_users = %s::int", own)
        async with storage.reading() as read:
            page = await read.members.page(acme, MemberFilter(), ALL)
        assert page == MembersPage([], 0, expected)


async def test_a_user_has_one_membership_per_organization(storage: Postgres, pool: Pool) -> None:
    user = await add(storage, account())
    acme, other_tenant = [await add_organization(pool, slug) for slug in ("acme", "twin")]
    await join(storage, membership(acme, user.id))
    with pytest.raises(AlreadyMember):
        await join(storage, membership(acme, user.id, ADMIN))
    await join(storage, membership(other_tenant, user.id))
    assert [await count_of(pool, org) for org in (acme, other_tenant)] == [(1, 1), (1, 1)]


async def test_an_organization_has_one_owner(storage: Postgres, pool: Pool) -> None:
    await add(storage, user := account(), eve := account(EVE))
    acme, other_tenant = [await add_organization(pool, slug) for slug in ("acme", "twin")]
    await join(storage, membership(acme, user.id, OWNER), membership(acme, eve.id), membership(other_tenant, user.id, OWNER))
    with pytest.raises(psycopg.errors.UniqueViolation):
        await within(storage, lambda tx: tx.members.set_role(acme, eve.id, OWNER))
    async with storage.transaction(by=SYSTEM) as tx:
        await tx.members.set_role(acme, user.id, ADMIN)
        await tx.members.set_role(acme, eve.id, OWNER)
    assert set(await run_sql(pool, "select org_id, user_id from memberships where role = 'owner'")) == {
        (acme, eve.id),
        (other_tenant, user.id),
    }


async def test_a_role_change_affects_one_membership(storage: Postgres, pool: Pool) -> None:
    await add(storage, user := account(), eve := account(EVE))
    acme, other_tenant = [await add_organization(pool, slug) for slug in ("acme", "twin")]
    await join(storage, membership(acme, user.id), membership(acme, eve.id), membership(other_tenant, user.id))
    before = await all_rows(pool)
    await within(storage, lambda tx: tx.members.set_role(acme, user.id, ADMIN))
    [row] = await all_rows(pool) - before
    assert (row[1:4], len(await all_rows(pool) & before)) == ((acme, user.id, "admin"), 2)
    changed_once = await all_rows(pool)
    async with storage.transaction(by=SYSTEM) as tx:
        await tx.members.set_role(uuid4(), user.id, OWNER)
        await tx.members.set_role(acme, uuid4(), OWNER)
    assert await all_rows(pool) == changed_once


async def test_a_removal_affects_one_membership_and_the_count(storage: Postgres, pool: Pool) -> None:
    await add(storage, user := account(), eve := account(EVE))
    acme, other_tenant = [await add_organization(pool, slug) for slug in ("acme", "twin")]
    await join(storage, membership(acme, user.id), membership(acme, eve.id), membership(other_tenant, user.id))
    await within(storage, lambda tx: tx.members.remove(acme, user.id, NOW))
    assert {(row[1], row[2]) for row in await all_rows(pool)} == {(acme, eve.id), (other_tenant, user.id)}
    assert [await count_of(pool, org) for org in (acme, other_tenant)] == [(1, 1), (1, 1)]
    # Removing a non-member, or another organization's member, does not change the count.
    async with storage.transaction(by=SYSTEM) as tx:
        for org, target in ((acme, user.id), (other_tenant, eve.id), (acme, uuid4())):
            await tx.members.remove(org, target, NOW)
    assert [await count_of(pool, org) for org in (acme, other_tenant)] == [(1, 1), (1, 1)]


async def test_a_rollback_does_not_change_the_count(storage: Postgres, pool: Pool) -> None:
    await add(storage, user := account(), eve := account(EVE))
    org = await add_organization(pool, "acme")
    await join(storage, membership(org, user.id))
    with pytest.raises(AlreadyMember):
        await join(storage, membership(org, eve.id), membership(org, user.id))
    assert await count_of(pool, org) == (1, 1)


async def test_a_confirmation_affects_one_membership_and_only_the_first_counts(storage: Postgres, pool: Pool) -> None:
    await add(storage, user := account(), eve := account(EVE))
    acme, other_tenant = [await add_organization(pool, slug) for slug in ("acme", "twin")]
    pairs = ((acme, user.id), (acme, eve.id), (other_tenant, user.id))
    await join(storage, *(membership(org, target, confirmed_at=None) for org, target in pairs))
    async with storage.autocommit() as at_once:
        await at_once.members.confirm(acme, user.id, NOW)
        await at_once.members.confirm(acme, user.id, NOW + HOUR)
        await at_once.members.confirm(other_tenant, eve.id, NOW)
    confirmed = {(org, target): at for _, org, target, _, _, at in await all_rows(pool)}
    assert confirmed == {(acme, user.id): NOW, (acme, eve.id): None, (other_tenant, user.id): None}


async def test_a_lock_affects_one_membership_only(storage: Postgres, pool: Pool) -> None:
    await add(storage, user := account(), eve := account(EVE))
    acme, other_tenant = [await add_organization(pool, slug) for slug in ("acme", "twin")]
    adas_membership, eves_membership, twin_membership = (
        membership(acme, user.id),
        membership(acme, eve.id),
        membership(other_tenant, user.id),
    )
    await join(storage, adas_membership, eves_membership, twin_membership)
    async with storage.transaction(by=SYSTEM) as tx:
        await tx.members.lock(acme, user.id)
        assert [await is_locked(pool, "memberships", "id = %s", one.id) for one in (adas_membership, eves_membership, twin_membership)] == [
            True,
            False,
            False,
        ]
        assert not await is_locked(pool, "users", "id = %s", user.id)
        assert not await is_locked(pool, "organizations", "id = %s", acme)
    assert not await is_locked(pool, "memberships", "id = %s", adas_membership.id)


async def test_a_lock_that_waited_returns_the_committed_change(storage: Postgres, pool: Pool) -> None:
    await add(storage, user := account(), eve := account(EVE))
    org = await add_organization(pool, "acme")
    await join(storage, locked_membership := membership(org, user.id), membership(org, eve.id))
    results: dict[UUID, Membership | None] = {}

    async def look(target: UUID) -> None:
        results[target] = await within(storage, lambda tx: tx.members.lock(org, target))

    async with trio.open_nursery() as nursery, storage.transaction(by=SYSTEM) as tx:
        await tx.members.set_role(org, user.id, ADMIN)
        await tx.members.remove(org, eve.id, NOW)
        for target in (user.id, eve.id):
            nursery.start_soon(look, target)
        await until_blocked(pool, 2)
        assert not results
    assert results == {user.id: replace(locked_membership, role=ADMIN, rights=rights_of(ADMIN)), eve.id: None}


async def test_the_count_is_correct_after_concurrent_joins_and_removals(storage: Postgres, pool: Pool) -> None:
    people = [account(f"person-{number}@example.com") for number in range(20)]
    await add(storage, *people)
    acme, other_tenant = [await add_organization(pool, slug) for slug in ("acme", "twin")]
    await join(storage, *(membership(acme, person.id) for person in people[:10]))

    async def come_or_go(number: int) -> None:
        async with storage.transaction(by=SYSTEM) as tx:
            await tx.organizations.lock(acme)
            if number < 10:
                await tx.members.remove(acme, people[number].id, NOW)
            else:
                await tx.members.add(membership(acme, people[number].id))

    await run_concurrently(20, come_or_go)
    assert [await count_of(pool, org) for org in (acme, other_tenant)] == [(10, 10), (0, 0)]


async def test_the_database_knows_exactly_the_roles_of_the_code(pool: Pool) -> None:
    names = [*ROLES, "", "Owner", "owner ", "boss", "members"]
    assert await run_sql(pool, "select name from unnest(%s::text[]) as each (name) where is_role(name)", names) == [
        (role,) for role in ROLES
    ]
    checked = """
        select conrelid::regclass::text, convalidated from pg_constraint
        where contype = 'c' and pg_get_constraintdef(oid) like '%%is_role(role)%%' order by 1"""
    assert await run_sql(pool, checked) == [("groups", True), ("invitations", True), ("memberships", True), ("service_accounts", True)]
