"""Storage for SCIM users and tokens."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.accounts.model.accounts import AccountOrigin
from core.kernel.causes import SYSTEM
from core.kernel.roles import ADMIN, MEMBER
from core.kernel.values import Email, digest, new_id
from core.provisioning.model.directories import ScimToken
from core.provisioning.model.groups import GroupMember
from core.provisioning.model.users import ScimUser, WelcomeContext
from tests.provisioning.storage.users import PROFILES, add_users
from tests.support.builders import add_member, add_provisioned, run_sql
from tests.support.rows import ADA, EVE, NOW, SECOND, account, add, within
from tests.support.services import add_service


@pytest.fixture
async def users_of_acme(storage: Postgres, pool: Pool, acme: UUID, other_tenant: UUID) -> list[ScimUser]:
    return await add_users(storage, pool, acme, other_tenant)


async def test_a_page_is_a_part_of_the_list_of_one_organization(
    storage: Postgres, acme: UUID, other_tenant: UUID, users_of_acme: list[ScimUser]
) -> None:
    async with storage.reading() as read:
        for offset, limit in ((0, 3), (2, 3), (6, 5), (7, 5), (0, 0)):
            page = await read.scim_users.page(acme, None, offset, limit)
            assert (list(page.items), page.total) == (users_of_acme[offset : offset + limit], 7)
        assert (await read.scim_users.page(other_tenant, None, 0, 100)).total == 1
        assert (await read.scim_users.page(new_id(), None, 0, 100)).total == 0
        for user in users_of_acme:
            assert await read.scim_users.by_id(acme, user.id) == user
            assert await read.scim_users.by_id(other_tenant, user.id) is None
            assert await read.directory_blocks.exists(acme, user.id) == user.is_blocked
            assert not await read.directory_blocks.exists(other_tenant, user.id)


async def test_users_have_their_state_and_profile(users_of_acme: list[ScimUser]) -> None:
    states = [(user.active, user.role, user.is_blocked, user.profile) for user in users_of_acme[:5]]
    assert states == [
        (True, MEMBER, False, PROFILES[0]),
        (False, None, True, PROFILES[1]),
        (True, None, False, PROFILES[2]),
        (False, None, True, PROFILES[3]),
        (True, MEMBER, False, PROFILES[4]),
    ]


async def test_a_blocked_user_is_no_member_until_the_block_is_removed(storage: Postgres, pool: Pool, acme: UUID) -> None:
    user = account(is_platform_owner=False)
    await add(storage, user)
    await add_member(pool, acme, user.id, ADMIN, confirmed=True)
    membership = "select id, role, created_at, confirmed_at from memberships where user_id = %s"
    [(membership_id, _, joined_at, _)] = await run_sql(pool, membership, user.id)
    for _ in range(2):
        await within(storage, lambda tx: tx.directory_blocks.add(acme, user.id, NOW))
    await within(storage, lambda tx: tx.scim_users.remove_members(acme, [user.id], NOW))
    await within(storage, lambda tx: tx.scim_users.restore_members(acme, [user.id], NOW))
    assert await run_sql(pool, membership, user.id) == []
    await within(storage, lambda tx: tx.directory_blocks.remove(acme, user.id))
    await within(storage, lambda tx: tx.scim_users.restore_members(acme, [user.id], NOW))
    assert await run_sql(pool, membership, user.id) == [(membership_id, "member", joined_at, None)]
    assert await run_sql(pool, "select member_count from organizations where id = %s", acme) == [(1,)]


async def test_the_group_lists_members_of_one_organization(
    storage: Postgres, pool: Pool, acme: UUID, other_tenant: UUID, users_of_acme: list[ScimUser]
) -> None:
    member_ids = sorted(user.id for user in users_of_acme if user.role is not None)
    async with storage.reading() as read:
        assert await read.scim_users.group_ids(acme, None, 100) == member_ids
        assert await read.scim_users.group_ids(acme, member_ids[1], 2) == member_ids[2:4]
        users = sorted(users_of_acme, key=lambda user: user.id)
        expected = [
            GroupMember(
                user.id, user.role, user.is_blocked, is_platform_owner=False, is_provisioned=user.is_provisioned, is_anonymized=False
            )
            for user in users
        ]
        assert await read.scim_users.all_group_members(acme, None, 100) == expected
        assert await read.scim_users.all_group_members(acme, users[1].id, 3) == expected[2:5]
        assert await read.scim_users.group_members(acme, [users_of_acme[0].id, new_id()]) == [
            GroupMember(users_of_acme[0].id, MEMBER, is_blocked=False, is_platform_owner=False, is_provisioned=False, is_anonymized=False)
        ]
        assert await read.scim_users.group_members(other_tenant, [users_of_acme[0].id]) == []
    for user in users_of_acme:
        await within(storage, lambda tx, user=user: tx.scim_users.remove_members(other_tenant, [user.id], NOW))  # type: ignore[misc]
    async with storage.reading() as read:
        assert list((await read.scim_users.page(acme, None, 0, 100)).items) == users_of_acme


async def test_the_restored_membership_of_a_provisioned_account_is_confirmed(storage: Postgres, pool: Pool, acme: UUID) -> None:
    provisioned = replace(account(is_platform_owner=False), origin=AccountOrigin.SCIM, origin_org_id=acme)
    other = account(Email("other@example.com"), is_platform_owner=False)
    await add(storage, provisioned, other)
    for user in (provisioned, other):
        await add_provisioned(pool, acme, user.id)
    await within(storage, lambda tx: tx.scim_users.restore_members(acme, [provisioned.id, other.id], NOW))
    rows: list[Any] = await run_sql(pool, "select user_id, role, confirmed_at from memberships where org_id = %s", acme)
    assert {row[0]: row[1:] for row in rows} == {provisioned.id: ("member", NOW), other.id: ("member", None)}


async def test_tokens_belong_to_their_organization(storage: Postgres, acme: UUID, other_tenant: UUID) -> None:
    token = ScimToken(
        id=new_id(), org_id=acme, name="Okta", prefix="scim_live_abcdef", expires_at=NOW + SECOND, created_by=new_id(), created_at=NOW
    )
    await within(storage, lambda tx: tx.scim_tokens.add(token, digest("x")))
    async with storage.reading() as read:
        assert await read.scim_tokens.of_org(acme) == [token]
        assert await read.scim_tokens.of_org(other_tenant) == []
        assert await read.scim_tokens.by_id(acme, token.id) == token
        assert await read.scim_tokens.by_id(other_tenant, token.id) is None
        record = await read.scim_tokens.by_hash(digest("x"), NOW)
        assert record is not None
        assert (record.token_id, record.token_hash, record.org_id, record.org_slug, record.status) == (
            token.id, digest("x"), acme, "acme", "active",
        )  # fmt: skip
        expired = await read.scim_tokens.by_hash(digest("x"), NOW + SECOND)
        assert (record.is_expired, expired is not None and expired.is_expired) == (False, True)
        assert await read.scim_tokens.by_hash(digest("y"), NOW) is None
    async with storage.transaction(by=SYSTEM) as tx:
        valid = [
            await tx.scim_tokens.is_live(org_id, token_id, now)
            for org_id, token_id, now in [
                (acme, token.id, NOW), (other_tenant, token.id, NOW), (acme, new_id(), NOW), (acme, token.id, NOW + SECOND),
            ]
        ]  # fmt: skip
        assert await tx.organizations.by_id(acme) is not None
    assert valid == [True, False, False, False]
    await within(storage, lambda tx: tx.scim_tokens.remove(other_tenant, token.id))
    async with storage.reading() as read:
        assert await read.scim_tokens.of_org(acme) == [token]
    await within(storage, lambda tx: tx.scim_tokens.remove(acme, token.id))
    async with storage.reading() as read:
        assert await read.scim_tokens.of_org(acme) == []


async def test_a_welcome_names_the_only_application_that_the_user_may_use(
    storage: Postgres, pool: Pool, acme: UUID, other_tenant: UUID
) -> None:
    user, stranger = account(ADA), account(EVE)
    await add(storage, user)
    await add(storage, stranger)
    await add_member(pool, acme, user.id, confirmed=True)

    async def welcome(email: Email) -> WelcomeContext | None:
        async with storage.transaction(by=SYSTEM) as tx:
            return await tx.scim_users.welcome_context(acme, email, NOW)

    await add_service(pool, other_tenant, "foreign")
    assert await welcome(user.email) == WelcomeContext("Acme", None)
    shop = await add_service(pool, acme, "shop")
    assert await welcome(user.email) == WelcomeContext("Acme", "Shop", shop)
    portal = await add_service(pool, acme, "portal")
    assert await welcome(user.email) == WelcomeContext("Acme", None)
    await run_sql(pool, "update services set access_policy = 'assigned' where id = %s", portal)
    assert await welcome(user.email) == WelcomeContext("Acme", "Shop", shop)
    await run_sql(pool, "update services set access_policy = 'members' where org_id = %s", acme)
    assert await welcome(stranger.email) == WelcomeContext("Acme", None)
    assert await welcome(Email("unknown@example.com")) is None
    await run_sql(pool, "update organizations set status = 'suspended' where id = %s", acme)
    assert await welcome(user.email) is None
