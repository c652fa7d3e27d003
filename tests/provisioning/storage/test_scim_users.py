"""Whom a directory knows, as the database has it: filters against the plain model, and whose each statement is."""

from dataclasses import replace
from datetime import timedelta
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
from core.provisioning.filters import FieldComparison, ScimField, ScimFilter, FieldType, FieldPresent, Value, matches
from core.provisioning.grammar import And, Not, FilterOperator, Or
from core.provisioning.groups_rules import GroupMember
from core.provisioning.users_rules import ScimProfile, ScimUser
from tests.support.builders import add_member, add_provisioned, run_sql
from tests.support.rows import NOW, SECOND, account, add, within

# Whatever means something in a pattern, or in SQL, or has no case.
TEXTS = ["ada", "Ada", "50%", "_", "a\\b", "'", "--", "", "x y", "日本", "a%", "%"]
DESCRIPTIONS = [
    ScimProfile(),
    ScimProfile("ada", "Ada L", "Ada", "L", "ada"),
    ScimProfile("Ada", "50%", "_", "a\\b", "'"),
    ScimProfile(None, None, "日本", "x y", "A%"),
    ScimProfile("--", "--", None, "--", None),
]


@pytest.fixture
async def everybody(storage: Postgres, pool: Pool, acme: UUID, twin: UUID) -> list[ScimUser]:
    """Members, some of them described; two who are deactivated, one of whom as a whole; one who is known, and no member. And others'."""
    users = [account(Email(f"{name}@example.com"), is_platform_owner=False) for name in ("ada", "b_b", "c%d", "eve", "f-1", "g", "h")]
    await add(storage, *users)
    for number, user in enumerate(users):
        await add_member(pool, acme, user.id, confirmed=True)
        moment = NOW + number * SECOND
        await run_sql(pool, "update memberships set created_at = %s where user_id = %s", moment, user.id)
        if number < len(DESCRIPTIONS):
            await within(
                storage,
                lambda tx, user=user, number=number: tx.scim_users.save_profile(  # type: ignore[misc]
                    acme, user.id, DESCRIPTIONS[number], user.email, NOW + timedelta(days=number)
                ),
            )
    stranger = account(Email("ada@twin.example"), is_platform_owner=False)
    await add(storage, stranger)
    await add_member(pool, twin, stranger.id)
    await within(storage, lambda tx: tx.scim_users.save_profile(twin, stranger.id, DESCRIPTIONS[1], stranger.email, NOW))
    await within(storage, lambda tx: tx.scim_users.deactivate(acme, users[1].id, NOW, whole_account=True))
    await within(storage, lambda tx: tx.accounts.deactivate(users[1].id, NOW))
    await within(storage, lambda tx: tx.scim_users.deactivate(acme, users[3].id, NOW, whole_account=False))
    await run_sql(pool, "update scim_users set provisioned = true where user_id = %s", users[2].id)
    await within(storage, lambda tx: tx.scim_users.remove_members(acme, [users[2].id], NOW))
    async with storage.reading() as read:
        listed = await read.scim_users.page(acme, None, 0, 100)
    assert ([user.id for user in listed.items], listed.total) == ([user.id for user in users], 7)
    return list(listed.items)


def value_of(user: ScimUser, field: ScimField) -> Value:
    described = user.description
    found: dict[ScimField, Value] = {
        ScimField.ID: str(user.id),
        ScimField.EXTERNAL_ID: described.external_id,
        ScimField.ADDRESS: user.email,
        ScimField.ADDRESS_TYPE: "work",
        ScimField.ADDRESS_PRIMARY: True,
        ScimField.FORMATTED: described.formatted,
        ScimField.GIVEN_NAME: described.given_name,
        ScimField.FAMILY_NAME: described.family_name,
        ScimField.DISPLAY_NAME: described.display_name,
        ScimField.ACTIVE: user.active,
        ScimField.RESOURCE_TYPE: "User",
        ScimField.CREATED: user.created_at,
        ScimField.LAST_MODIFIED: user.updated_at,
    }
    value = found[field]
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
            operators = [each for each in FilterOperator if each not in (FilterOperator.CO, FilterOperator.SW, FilterOperator.EW)]
            return FieldComparison(field, draw(st.sampled_from(operators)), NOW + draw(st.integers(-1, 3)) * SECOND)
        case FieldType.EXACT:
            return FieldComparison(field, draw(st.sampled_from(FilterOperator)), text)
    return FieldComparison(field, draw(st.sampled_from(FilterOperator)), text.lower())


filters: st.SearchStrategy[ScimFilter] = st.recursive(
    comparisons() | st.builds(FieldPresent, fields),
    lambda inner: (
        st.builds(Not, inner)
        | st.lists(inner, min_size=2, max_size=3).map(lambda of: And(tuple(of)))
        | st.lists(inner, min_size=2, max_size=3).map(lambda of: Or(tuple(of)))
    ),
    max_leaves=5,
)


def examples(count: int) -> list[ScimFilter]:
    found: list[ScimFilter] = []

    @settings(derandomize=True, database=None, deadline=None, max_examples=count)
    @given(filters)
    def collect(each: ScimFilter) -> None:
        found.append(each)

    collect()
    return found


@pytest.mark.slow
async def test_a_filter_finds_those_of_whom_it_holds(storage: Postgres, acme: UUID, everybody: list[ScimUser]) -> None:
    async with storage.reading() as read:
        for each in [*examples(400), *(FieldComparison(ScimField.ID, FilterOperator.EQ, str(user.id)) for user in everybody)]:
            expected = [user for user in everybody if matches(each, lambda field, user=user: value_of(user, field))]  # type: ignore[misc]
            found = await read.scim_users.page(acme, each, 0, 100)
            assert (list(found.items), found.total) == (expected, len(expected)), each
            part = await read.scim_users.page(acme, each, 1, 2)
            assert (list(part.items), part.total) == (expected[1:3], len(expected)), each


async def test_pages_are_cut_out_of_all(storage: Postgres, acme: UUID, twin: UUID, everybody: list[ScimUser]) -> None:
    async with storage.reading() as read:
        for offset, limit in ((0, 3), (2, 3), (6, 5), (7, 5), (0, 0)):
            page = await read.scim_users.page(acme, None, offset, limit)
            assert (list(page.items), page.total) == (everybody[offset : offset + limit], 7)
        assert (await read.scim_users.page(twin, None, 0, 100)).total == 1
        assert (await read.scim_users.page(new_id(), None, 0, 100)).total == 0
        for user in everybody:
            assert await read.scim_users.by_id(acme, user.id) == user
            assert await read.scim_users.by_id(twin, user.id) is None
            assert await read.scim_users.is_blocked(acme, user.id) == user.deactivated_here
            assert not await read.scim_users.is_blocked(twin, user.id)


async def test_what_each_of_them_is(everybody: list[ScimUser]) -> None:
    shown = [(user.active, user.role, user.deactivated_here, user.whole_account, user.description) for user in everybody[:5]]
    assert shown == [
        (True, Role.MEMBER, False, False, DESCRIPTIONS[0]),
        (False, Role.MEMBER, True, True, DESCRIPTIONS[1]),
        (True, None, False, False, DESCRIPTIONS[2]),
        (False, Role.MEMBER, True, False, DESCRIPTIONS[3]),
        (True, Role.MEMBER, False, False, DESCRIPTIONS[4]),
    ]


async def test_a_membership_that_was_put_away_comes_back_as_it_was(storage: Postgres, pool: Pool, acme: UUID) -> None:
    ada = account(is_platform_owner=False)
    await add(storage, ada)
    await add_member(pool, acme, ada.id, Role.ADMIN, confirmed=True)
    kept = "select id, role, created_at, confirmed_at from memberships where user_id = %s"
    before = await run_sql(pool, kept, ada.id)
    await within(storage, lambda tx: tx.scim_users.deactivate(acme, ada.id, NOW, whole_account=False))
    assert await run_sql(pool, kept, ada.id) == []
    await within(storage, lambda tx: tx.scim_users.reactivate(acme, ada.id, NOW))
    assert await run_sql(pool, kept, ada.id) == before
    assert await run_sql(pool, "select membership_id, role, deactivated_at from scim_users") == [(None, None, None)]
    assert await run_sql(pool, "select member_count from organizations where id = %s", acme) == [(1,)]


async def test_the_group(storage: Postgres, pool: Pool, acme: UUID, twin: UUID, everybody: list[ScimUser]) -> None:
    inside = sorted(user.id for user in everybody if user.role is not None)
    async with storage.reading() as read:
        assert await read.scim_users.group_ids(acme, None, 100) == inside
        assert await read.scim_users.group_ids(acme, inside[1], 2) == inside[2:4]
        every = sorted(everybody, key=lambda user: user.id)
        expected = [GroupMember(user.id, user.role, user.deactivated_here, is_platform_owner=False) for user in every]
        assert await read.scim_users.all_group_members(acme, None, 100) == expected
        assert await read.scim_users.all_group_members(acme, every[1].id, 3) == expected[2:5]
        assert await read.scim_users.group_members(acme, [everybody[0].id, new_id()]) == [
            GroupMember(everybody[0].id, Role.MEMBER, is_deactivated=False, is_platform_owner=False)
        ]
        assert await read.scim_users.group_members(twin, [everybody[0].id]) == []
    for user in everybody:
        await within(storage, lambda tx, user=user: tx.scim_users.remove_members(twin, [user.id], NOW))  # type: ignore[misc]
        await within(storage, lambda tx, user=user: tx.scim_users.forget(twin, user.id))  # type: ignore[misc]
        await within(storage, lambda tx, user=user: tx.scim_users.reactivate(twin, user.id, NOW))  # type: ignore[misc]
        await within(storage, lambda tx, user=user: tx.scim_users.restore_members(twin, [user.id], NOW))  # type: ignore[misc]
    async with storage.reading() as read:
        assert list((await read.scim_users.page(acme, None, 0, 100)).items) == everybody


async def test_an_account_that_was_born_here_takes_part_as_soon_as_it_is_admitted(storage: Postgres, pool: Pool, acme: UUID) -> None:
    born = replace(account(is_platform_owner=False), origin=AccountOrigin.SCIM, origin_org_id=acme)
    other = account(Email("other@example.com"), is_platform_owner=False)
    await add(storage, born, other)
    for user in (born, other):
        await add_provisioned(pool, acme, user.id)
    await within(storage, lambda tx: tx.scim_users.restore_members(acme, [born.id, other.id], NOW))
    rows: list[Any] = await run_sql(pool, "select user_id, role, confirmed_at from memberships where org_id = %s", acme)
    assert {row[0]: row[1:] for row in rows} == {born.id: ("member", NOW), other.id: ("member", None)}


async def test_tokens_are_their_organizations(storage: Postgres, acme: UUID, twin: UUID) -> None:
    from core.provisioning.tokens_rules import ScimToken

    token = ScimToken(
        id=new_id(), org_id=acme, name="Okta", prefix="scim_live_abcdef", expires_at=NOW + SECOND, created_by=new_id(), created_at=NOW
    )
    await within(storage, lambda tx: tx.scim_tokens.add(token, digest("x")))
    async with storage.reading() as read:
        assert await read.scim_tokens.of_org(acme) == [token]
        assert await read.scim_tokens.of_org(twin) == []
        assert await read.scim_tokens.by_id(acme, token.id) == token
        assert await read.scim_tokens.by_id(twin, token.id) is None
        found = await read.scim_tokens.by_hash(digest("x"), NOW)
        assert found is not None
        assert (found.token_id, found.token_hash, found.org_id, found.org_slug, found.status) == (
            token.id, digest("x"), acme, "acme", "active",
        )  # fmt: skip
        assert await read.scim_tokens.by_hash(digest("x"), NOW + SECOND) is None
        assert await read.scim_tokens.by_hash(digest("y"), NOW) is None
    async with storage.transaction(by=SYSTEM) as tx:
        asked = [
            tx.scim_tokens.is_live_deferred(org_id, token_id, now)
            for org_id, token_id, now in [
                (acme, token.id, NOW), (twin, token.id, NOW), (acme, new_id(), NOW), (acme, token.id, NOW + SECOND),
            ]
        ]  # fmt: skip
        assert await tx.organizations.by_id(acme) is not None
    assert [each.value for each in asked] == [True, False, False, False]
    await within(storage, lambda tx: tx.scim_tokens.remove(twin, token.id))
    async with storage.reading() as read:
        assert await read.scim_tokens.of_org(acme) == [token]
    await within(storage, lambda tx: tx.scim_tokens.remove(acme, token.id))
    async with storage.reading() as read:
        assert await read.scim_tokens.of_org(acme) == []
