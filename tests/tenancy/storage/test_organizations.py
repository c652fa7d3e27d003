"""Storage for organizations, except the list for platform owners."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, LiteralString
from uuid import UUID, uuid4

import pytest
import trio

from adapters.postgres.engine.listen import listen
from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres, Transaction
from core.kernel.callers import OrganizationStatus
from core.kernel.causes import SYSTEM
from core.kernel.roles import ADMIN, MEMBER, OWNER, rights_of
from core.kernel.values import Slug
from core.tenancy.model.organizations import Membership, Organization, SlugTaken, Tier
from tests.support.builders import FREE, PROFESSIONAL, add_member, add_organization, run_concurrently, run_during, run_sql
from tests.support.rows import ADA, DAY, EVE, HOUR, NOW, SECOND, account, add, in_another_task, is_locked, within
from tests.tenancy.storage.records import leave_records, records_of


def organization(slug: str = "acme", **changes: Any) -> Organization:
    default = Organization(
        id=uuid4(),
        slug=Slug(slug),
        name="Acme Ltd.",
        status=OrganizationStatus.ACTIVE,
        tier=FREE,
        max_services=7,
        max_users=8,
        device_trust_days=9,
        personal_tokens=True,
        members_see_end_users=False,
        member_count=0,
        created_at=NOW - DAY,
        updated_at=NOW - HOUR,
        approved_at=NOW - SECOND,
        rejected_reason="why not",
        suspended_reason="because",
    )
    return replace(default, **changes)


BARE: dict[str, Any] = {
    "tier": None,
    "max_services": None,
    "max_users": None,
    "approved_at": None,
    "rejected_reason": None,
    "suspended_reason": None,
}


async def add_organizations(storage: Postgres, *organizations: Organization) -> Organization:
    async with storage.transaction(by=SYSTEM) as tx:
        for organization in organizations:
            await tx.organizations.add(organization)
    return organizations[0]


# An organization's invitation, with the hash of its token.
INVITED: LiteralString = """
    (id, org_id, email, role, invited_by, status, token_hash, expires_at, created_at)
    values (gen_random_uuid(), %s, 'x@example.com', 'member', gen_random_uuid(), 'pending', %s, now(), now())"""


async def by_id(storage: Postgres, org_id: UUID) -> Organization | None:
    async with storage.reading() as read:
        return await read.organizations.by_id(org_id)


@pytest.mark.parametrize("status", list(OrganizationStatus))
@pytest.mark.parametrize("changes", [{}, BARE, {"tier": PROFESSIONAL}], ids=["full", "bare", "professional"])
async def test_every_field_of_an_organization_is_stored_and_read_back(
    storage: Postgres, status: OrganizationStatus, changes: dict[str, Any]
) -> None:
    one = organization(status=status, **changes)
    await add_organizations(storage, one, organization("twin"))
    assert await by_id(storage, one.id) == one
    assert await within(storage, lambda tx: tx.organizations.lock(one.id)) == one
    assert await by_id(storage, uuid4()) is None
    assert await within(storage, lambda tx: tx.organizations.lock(uuid4())) is None


async def test_a_slug_is_unique(storage: Postgres, pool: Pool) -> None:
    await add_organizations(storage, organization())
    with pytest.raises(SlugTaken):
        await add_organizations(storage, organization(status=OrganizationStatus.REJECTED))
    assert await run_sql(pool, "select count(*) from organizations") == [(1,)]


async def test_save_writes_every_field_except_slug_creation_time_and_member_count(storage: Postgres) -> None:
    one, other_tenant = organization(), organization("twin")
    await add_organizations(storage, one, other_tenant)
    new_values = organization(
        id=one.id,
        name="Other",
        status=OrganizationStatus.SUSPENDED,
        tier=PROFESSIONAL,
        max_services=17,
        max_users=18,
        device_trust_days=19,
        members_see_end_users=True,
        updated_at=NOW,
        approved_at=NOW + SECOND,
        rejected_reason="r",
        suspended_reason="s",
    )
    await within(storage, lambda tx: tx.organizations.save(replace(new_values, slug=Slug("x"), created_at=NOW, member_count=99)))
    assert await by_id(storage, one.id) == new_values
    bare = replace(new_values, **BARE)
    await within(storage, lambda tx: tx.organizations.save(bare))
    assert await by_id(storage, one.id) == bare
    assert await by_id(storage, other_tenant.id) == other_tenant


async def test_activation_notifies_the_senders_of_waiting_deliveries(storage: Postgres, pool: Pool, conninfo: str) -> None:
    one = organization()
    suspended = replace(one, status=OrganizationStatus.SUSPENDED)
    await add_organizations(storage, one, organization("twin", status=OrganizationStatus.SUSPENDED))
    async with listen(conninfo, ["webhooks", "siem", "over"]) as notified:
        for new_state in (replace(one, name="Other"), suspended, replace(suspended, name="Third")):
            await within(storage, lambda tx, saved=new_state: tx.organizations.save(saved))  # type: ignore[misc]
        await run_sql(pool, "notify over")
        assert await anext(notified) == ("over", ""), "none of these changes activates the organization"
        await within(storage, lambda tx: tx.organizations.save(one))
        assert {await anext(notified), await anext(notified)} == {("webhooks", ""), ("siem", "")}


@pytest.mark.parametrize("days", [0, 91])
async def test_the_database_checks_the_device_trust_period(storage: Postgres, days: int) -> None:
    with pytest.raises(Exception, match="device_trust_days"):
        await add_organizations(storage, organization(device_trust_days=days))


@pytest.mark.parametrize("status", ["pending", "active", "suspended", "rejected"])
async def test_an_organization_is_found_by_its_exact_slug_in_any_status(storage: Postgres, pool: Pool, status: str) -> None:
    org = await add_organization(pool, "acme", status)
    await add_organization(pool, "twin", status)
    for slug, expected in (("acme", org), ("Acme", None), ("acm_", None), ("", None)):
        assert await within(storage, lambda tx, slug=slug: tx.organizations.id_by_slug(slug)) == expected, slug  # type: ignore[misc]


async def test_a_member_gets_their_organizations_and_memberships_ordered_by_slug(storage: Postgres, pool: Pool) -> None:
    await add(storage, user := account(), eve := account(EVE))
    c, a, b, foreign = [organization(slug) for slug in ("c", "a", "b", "foreign")]
    b = replace(b, status=OrganizationStatus.REJECTED, **BARE)
    await add_organizations(storage, c, a, b, foreign)
    memberships = {
        one.id: Membership(
            id=uuid4(),
            org_id=one.id,
            user_id=user.id,
            role=role,
            created_at=NOW - DAY,
            confirmed_at=confirmed,
            rights=rights_of(role, members_see_end_users=one.members_see_end_users),
        )
        for one, role, confirmed in ((c, OWNER, NOW), (a, ADMIN, None), (b, MEMBER, NOW - HOUR))
    }
    async with storage.transaction(by=SYSTEM) as tx:
        for membership in memberships.values():
            await tx.members.add(membership)
    await add_member(pool, foreign.id, eve.id, "owner")
    async with storage.reading() as read:
        assert await read.organizations.by_member(user.id) == [
            (replace(one, member_count=1, members_changed_at=memberships[one.id].created_at), memberships[one.id]) for one in (a, b, c)
        ]
        assert [one.slug for one, _ in await read.organizations.by_member(eve.id)] == ["foreign"]
        assert await read.organizations.by_member(uuid4()) == []


async def test_a_lock_affects_one_organization_and_allows_referencing_rows(storage: Postgres, pool: Pool) -> None:
    one, other_tenant = organization(), organization("twin")
    await add_organizations(storage, one, other_tenant)
    async with storage.transaction(by=SYSTEM) as tx:
        assert await tx.organizations.lock(one.id)
        assert await is_locked(pool, "organizations", "id = %s", one.id)
        assert not await is_locked(pool, "organizations", "id = %s", other_tenant.id)
        with trio.fail_after(5):
            await in_another_task(lambda: run_sql(pool, "insert into invitations " + INVITED, one.id, b"token"))


LOCKS: dict[str, Callable[[Transaction, UUID], Awaitable[Organization | None]]] = {
    "lock": lambda tx, org_id: tx.organizations.lock(org_id),
    "lock_by_invitation_token": lambda tx, _: tx.organizations.lock_by_invitation_token(b"token"),
}


@pytest.mark.parametrize("lock", LOCKS)
@pytest.mark.parametrize(("before", "after"), [(FREE, PROFESSIONAL), (None, FREE), (FREE, None)])
async def test_a_lock_that_waited_returns_the_new_tier(
    storage: Postgres, pool: Pool, lock: str, before: Tier | None, after: Tier | None
) -> None:
    one = await add_organizations(storage, organization(tier=before))
    await run_sql(pool, "insert into invitations " + INVITED, one.id, b"token")
    change = ("update organizations set tier_id = %s, name = 'Other'", (after.id if after else None,))
    org_after = await run_during(pool, [change], lambda: within(storage, lambda tx: LOCKS[lock](tx, one.id)))
    assert org_after == replace(one, tier=after, name="Other")


async def test_a_lock_that_waited_returns_the_committed_row(storage: Postgres) -> None:
    one = await add_organizations(storage, organization())

    async def count_up(_: int) -> None:
        async with storage.transaction(by=SYSTEM) as tx:
            org_after = await tx.organizations.lock(one.id)
            assert org_after is not None
            assert org_after.device_trust_days is not None
            await tx.organizations.save(replace(org_after, device_trust_days=org_after.device_trust_days + 1))

    await run_concurrently(20, count_up)
    saved = await by_id(storage, one.id)
    assert saved is not None
    assert saved.device_trust_days == 29


# Deleting


async def test_a_deletion_removes_referencing_rows_and_keeps_accounts_and_records(storage: Postgres, pool: Pool) -> None:
    org, other_tenant = await add_organization(pool, "acme"), await add_organization(pool, "twin")
    await add(storage, account(), account(EVE))
    born_there = account("born@example.com", origin_org_id=org)
    await add(storage, born_there)
    people = {email: id_ for id_, email in await run_sql(pool, "select id, email from users")}
    login = """
        insert into login_events (id, user_id, org_id, provider, success, created_at)
        values (gen_random_uuid(), %s, %s, 'x', true, now())"""
    for one in (org, other_tenant):
        await add_member(pool, one, people[ADA], "owner")
        await run_sql(pool, "insert into invitations " + INVITED, one, one.bytes)
        await run_sql(pool, login, people[ADA], one)
    await within(storage, lambda tx: tx.organizations.delete(org, NOW))
    assert await run_sql(pool, "select id from organizations") == [(other_tenant,)]
    assert await run_sql(pool, "select org_id from memberships") == [(other_tenant,)]
    assert await run_sql(pool, "select org_id from invitations") == [(other_tenant,)]
    assert set(await run_sql(pool, "select org_id from login_events")) == {(org,), (other_tenant,)}
    assert await run_sql(pool, "select count(*) from users") == [(3,)]
    assert await run_sql(pool, "select origin_org_id from users where id = %s", born_there.id) == [(org,)]
    assert await run_sql(pool, "select id, deleted_at from deleted_organizations") == [(org, NOW)]


async def test_a_deletion_does_not_wait_for_changes_of_accounts_or_sign_ins(storage: Postgres, pool: Pool) -> None:
    """They lock the account. In the lock order it comes after the organization (security Z-6)."""
    org = await add_organization(pool, "acme")
    born_there = await add(storage, account(origin_org_id=org))
    login = """
        insert into login_events (id, user_id, org_id, provider, success, created_at)
        values (gen_random_uuid(), %s, %s, 'x', true, now())"""
    async with pool.connection() as connection, connection.transaction():
        await connection.execute("update users set updated_at = now()")
        await connection.execute(login, (born_there.id, org))
        with trio.fail_after(5):
            await in_another_task(lambda: within(storage, lambda tx: tx.organizations.delete(org, NOW)))
    assert await run_sql(pool, "select * from organizations") == []


async def test_deleting_an_unknown_organization_writes_nothing(storage: Postgres, pool: Pool) -> None:
    org = await add_organization(pool, "acme")
    await within(storage, lambda tx: tx.organizations.delete(uuid4(), NOW))
    assert await run_sql(pool, "select id from organizations") == [(org,)]
    assert await run_sql(pool, "select * from deleted_organizations") == []


async def test_records_of_one_organization_are_purged_in_bounded_batches(storage: Postgres, pool: Pool) -> None:
    org, other_tenant = await add_organization(pool, "acme"), await add_organization(pool, "twin")
    for one in (org, other_tenant):
        await leave_records(storage, one, 5)
    remaining = []
    for _ in range(4):
        await within(storage, lambda tx: tx.organizations.purge(org, 4))
        remaining.append(await records_of(pool, org))
    assert remaining == [[1, 5, 1], [0, 2, 1], [0, 0, 0], [0, 0, 0]]
    assert await records_of(pool, other_tenant) == [5, 5, 1]


async def test_a_batch_starts_with_the_newest_records(storage: Postgres, pool: Pool) -> None:
    """The order matches the index, so that the planner uses it."""
    org = await add_organization(pool, "acme")
    await leave_records(storage, org, 3)
    await within(storage, lambda tx: tx.organizations.purge(org, 1))
    assert await run_sql(pool, "select target_id from audit_log order by created_at") == [("0",), ("1",)]


async def test_a_purge_skips_locked_rows(storage: Postgres, pool: Pool) -> None:
    """The deletion already locks the organization and its members.

    Rows that other transactions lock are left to the housekeeper.
    """
    org = await add_organization(pool, "acme")
    await leave_records(storage, org, 1)
    async with pool.connection() as connection, connection.transaction():
        await connection.execute("select 1 from audit_totals for update")
        with trio.fail_after(5):
            await in_another_task(lambda: within(storage, lambda tx: tx.organizations.purge(org, 100)))
    assert await records_of(pool, org) == [0, 0, 1]
