"""Storage of SCIM users and tokens. Filters are compared with a model."""

from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.postgres.engine.pool import Pool
from adapters.postgres.engine.storage import Postgres
from core.accounts.accounts_rules import AccountOrigin
from core.kernel.principals import SYSTEM, Role
from core.kernel.values import Email, digest, new_id
from core.provisioning.filters import FieldComparison, FieldPresent, FieldType, FieldValue, ScimField, ScimFilter, matches
from core.provisioning.grammar import And, FilterOperator, Not, Or
from core.provisioning.groups_rules import GroupMember
from core.provisioning.tokens_rules import ScimToken
from core.provisioning.users_rules import ScimProfile, ScimUser
from tests.support.builders import add_member, add_provisioned, run_sql
from tests.support.rows import NOW, SECOND, account, add, within

# Texts with a meaning in LIKE patterns or in SQL, and texts without upper and lower case.
TEXTS = ["ada", "Ada", "50%", "_", "a\\b", "'", "--", "", "x y", "日本", "a%", "%"]
PROFILES = [
    ScimProfile(),
    ScimProfile("ada", "Ada L", "Ada", "L", "ada"),
    ScimProfile("Ada", "50%", "_", "a\\b", "'"),
    ScimProfile(None, None, "日本", "x y", "A%"),
    ScimProfile("--", "--", None, "--", None),
]


@pytest.fixture
async def users_of_acme(storage: Postgres, pool: Pool, acme: UUID, other_tenant: UUID) -> list[ScimUser]:
    """Seven users of acme, and one of the other tenant.

    Five of them have a profile. Two are deactivated, one of these with the whole account. One is
    known and not a member.
    """
    users = [account(Email(f"{name}@example.com"), is_platform_owner=False) for name in ("ada", "b_b", "c%d", "eve", "f-1", "g", "h")]
    await add(storage, *users)
    for number, user in enumerate(users):
        await add_member(pool, acme, user.id, confirmed=True)
        joined_at = NOW + number * SECOND
        await run_sql(pool, "update memberships set created_at = %s where user_id = %s", joined_at, user.id)
        if number < len(PROFILES):
            await within(
                storage,
                lambda tx, user=user, number=number: tx.scim_users.save_profile(  # type: ignore[misc]
                    acme, user.id, PROFILES[number], user.email, NOW + timedelta(days=number)
                ),
            )
    other_user = account(Email("ada@twin.example"), is_platform_owner=False)
    await add(storage, other_user)
    await add_member(pool, other_tenant, other_user.id)
    await within(storage, lambda tx: tx.scim_users.save_profile(other_tenant, other_user.id, PROFILES[1], other_user.email, NOW))
    await within(storage, lambda tx: tx.scim_users.deactivate(acme, users[1].id, NOW, whole_account=True))
    await within(storage, lambda tx: tx.accounts.deactivate(users[1].id, NOW))
    await within(storage, lambda tx: tx.scim_users.deactivate(acme, users[3].id, NOW, whole_account=False))
    await run_sql(pool, "update scim_users set provisioned = true where user_id = %s", users[2].id)
    await within(storage, lambda tx: tx.scim_users.remove_members(acme, [users[2].id], NOW))
    async with storage.reading() as read:
        page = await read.scim_users.page(acme, None, 0, 100)
    assert ([user.id for user in page.items], page.total) == ([user.id for user in users], 7)
    return list(page.items)


def value_of(user: ScimUser, field: ScimField) -> FieldValue:
    profile = user.profile
    values: dict[ScimField, FieldValue] = {
        ScimField.ID: str(user.id),
        ScimField.EXTERNAL_ID: profile.external_id,
        ScimField.ADDRESS: user.email,
        ScimField.ADDRESS_TYPE: "work",
        ScimField.ADDRESS_PRIMARY: True,
        ScimField.FORMATTED: profile.formatted,
        ScimField.GIVEN_NAME: profile.given_name,
        ScimField.FAMILY_NAME: profile.family_name,
        ScimField.DISPLAY_NAME: profile.display_name,
        ScimField.ACTIVE: user.active,
        ScimField.RESOURCE_TYPE: "User",
        ScimField.CREATED: user.created_at,
        ScimField.LAST_MODIFIED: user.updated_at,
    }
    value = values[field]
    return value.lower() if field.type is FieldType.TEXT and isinstance(value, str) else value


fields = st.sampled_from([field for field in ScimField if field is not ScimField.MEMBER])


@st.composite
def comparisons(draw: st.DrawFn) -> ScimFilter:
    field = draw(fields)
    text = draw(st.sampled_from([*TEXTS, "ada@example.com", "@example", "work", "User", "00000000-0000-4000-8000-000000000001"]))
    match field.type:
        case FieldType.FLAG:
            return FieldComparison(field, draw(st.sampled_from([FilterOperator.EQ, FilterOperator.NE])), draw(st.booleans()))
        case FieldType.TIME:
            operators = [
                operator for operator in FilterOperator if operator not in (FilterOperator.CO, FilterOperator.SW, FilterOperator.EW)
            ]
            return FieldComparison(field, draw(st.sampled_from(operators)), NOW + draw(st.integers(-1, 3)) * SECOND)
        case FieldType.EXACT:
            return FieldComparison(field, draw(st.sampled_from(FilterOperator)), text)
    return FieldComparison(field, draw(st.sampled_from(FilterOperator)), text.lower())


filters: st.SearchStrategy[ScimFilter] = st.recursive(
    comparisons() | st.builds(FieldPresent, fields),
    lambda inner: (
        st.builds(Not, inner)
        | st.lists(inner, min_size=2, max_size=3).map(lambda operands: And(tuple(operands)))
        | st.lists(inner, min_size=2, max_size=3).map(lambda operands: Or(tuple(operands)))
    ),
    max_leaves=5,
)


def examples(count: int) -> list[ScimFilter]:
    collected: list[ScimFilter] = []

    @settings(derandomize=True, database=None, deadline=None, max_examples=count)
    @given(filters)
    def collect(filter_: ScimFilter) -> None:
        collected.append(filter_)

    collect()
    return collected


@pytest.mark.slow
async def test_a_filter_finds_the_matching_users(storage: Postgres, acme: UUID, users_of_acme: list[ScimUser]) -> None:
    async with storage.reading() as read:
        for filter_ in [*examples(400), *(FieldComparison(ScimField.ID, FilterOperator.EQ, str(user.id)) for user in users_of_acme)]:
            expected = [user for user in users_of_acme if matches(filter_, partial(value_of, user))]
            page = await read.scim_users.page(acme, filter_, 0, 100)
            assert (list(page.items), page.total) == (expected, len(expected)), filter_
            part = await read.scim_users.page(acme, filter_, 1, 2)
            assert (list(part.items), part.total) == (expected[1:3], len(expected)), filter_


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
            assert await read.scim_users.is_blocked(acme, user.id) == user.deactivated_here
            assert not await read.scim_users.is_blocked(other_tenant, user.id)


async def test_users_have_their_state_and_profile(users_of_acme: list[ScimUser]) -> None:
    states = [(user.active, user.role, user.deactivated_here, user.whole_account, user.profile) for user in users_of_acme[:5]]
    assert states == [
        (True, Role.MEMBER, False, False, PROFILES[0]),
        (False, Role.MEMBER, True, True, PROFILES[1]),
        (True, None, False, False, PROFILES[2]),
        (False, Role.MEMBER, True, False, PROFILES[3]),
        (True, Role.MEMBER, False, False, PROFILES[4]),
    ]


async def test_activating_restores_the_suspended_membership_unchanged(storage: Postgres, pool: Pool, acme: UUID) -> None:
    user = account(is_platform_owner=False)
    await add(storage, user)
    await add_member(pool, acme, user.id, Role.ADMIN, confirmed=True)
    membership = "select id, role, created_at, confirmed_at from memberships where user_id = %s"
    before = await run_sql(pool, membership, user.id)
    await within(storage, lambda tx: tx.scim_users.deactivate(acme, user.id, NOW, whole_account=False))
    assert await run_sql(pool, membership, user.id) == []
    await within(storage, lambda tx: tx.scim_users.reactivate(acme, user.id, NOW))
    assert await run_sql(pool, membership, user.id) == before
    assert await run_sql(pool, "select membership_id, role, deactivated_at from scim_users") == [(None, None, None)]
    assert await run_sql(pool, "select member_count from organizations where id = %s", acme) == [(1,)]


async def test_the_group_lists_members_of_one_organization(
    storage: Postgres, pool: Pool, acme: UUID, other_tenant: UUID, users_of_acme: list[ScimUser]
) -> None:
    member_ids = sorted(user.id for user in users_of_acme if user.role is not None)
    async with storage.reading() as read:
        assert await read.scim_users.group_ids(acme, None, 100) == member_ids
        assert await read.scim_users.group_ids(acme, member_ids[1], 2) == member_ids[2:4]
        users = sorted(users_of_acme, key=lambda user: user.id)
        expected = [GroupMember(user.id, user.role, user.deactivated_here, is_platform_owner=False) for user in users]
        assert await read.scim_users.all_group_members(acme, None, 100) == expected
        assert await read.scim_users.all_group_members(acme, users[1].id, 3) == expected[2:5]
        assert await read.scim_users.group_members(acme, [users_of_acme[0].id, new_id()]) == [
            GroupMember(users_of_acme[0].id, Role.MEMBER, is_deactivated=False, is_platform_owner=False)
        ]
        assert await read.scim_users.group_members(other_tenant, [users_of_acme[0].id]) == []
    for user in users_of_acme:
        await within(storage, lambda tx, user=user: tx.scim_users.remove_members(other_tenant, [user.id], NOW))  # type: ignore[misc]
        await within(storage, lambda tx, user=user: tx.scim_users.forget(other_tenant, user.id))  # type: ignore[misc]
        await within(storage, lambda tx, user=user: tx.scim_users.reactivate(other_tenant, user.id, NOW))  # type: ignore[misc]
        await within(storage, lambda tx, user=user: tx.scim_users.restore_members(other_tenant, [user.id], NOW))  # type: ignore[misc]
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
        assert await read.scim_tokens.by_hash(digest("x"), NOW + SECOND) is None
        assert await read.scim_tokens.by_hash(digest("y"), NOW) is None
    async with storage.transaction(by=SYSTEM) as tx:
        valid = [
            tx.scim_tokens.is_live_deferred(org_id, token_id, now)
            for org_id, token_id, now in [
                (acme, token.id, NOW), (other_tenant, token.id, NOW), (acme, new_id(), NOW), (acme, token.id, NOW + SECOND),
            ]
        ]  # fmt: skip
        assert await tx.organizations.by_id(acme) is not None
    assert [deferred.value for deferred in valid] == [True, False, False, False]
    await within(storage, lambda tx: tx.scim_tokens.remove(other_tenant, token.id))
    async with storage.reading() as read:
        assert await read.scim_tokens.of_org(acme) == [token]
    await within(storage, lambda tx: tx.scim_tokens.remove(acme, token.id))
    async with storage.reading() as read:
        assert await read.scim_tokens.of_org(acme) == []
