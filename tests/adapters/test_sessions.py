"""Every statement about sessions, their refresh tokens and logins: each field, each condition, and that it touches nobody else's rows."""

from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
import trio

from adapters.postgres.pool import Pool
from adapters.postgres.storage import Postgres
from core.access import SYSTEM, OrganizationContext, OrganizationStanding, OrganizationStatus, Role, Standing
from core.sessions import Presented, Refreshed
from core.values import digest
from tests.adapters.rows import ADA, DAY, EVE, HOUR, NOW, SECOND, account, add, begin, somebody_waits, within
from tests.builders import add_member, add_organization, everyone, run_sql


async def test_every_field_of_a_session_is_stored_and_its_token_is_not(storage: Postgres, pool: Pool) -> None:
    await add(storage, ada := account(), eve := account(EVE))
    begun = await begin(storage, ada.id, "token", impersonator_id=eve.id)
    columns = "id, user_id, impersonator_id, created_at, expires_at, ends_at, address, agent, org_id, ended_at"
    assert await run_sql(pool, f"select {columns} from sessions") == [  # noqa: S608
        (begun.id, ada.id, eve.id, NOW - HOUR, NOW + 30 * DAY, NOW + 90 * DAY, "203.0.113.9", "tests", None, None)
    ]
    tokens = await run_sql(pool, "select token_hash, session_id, generation, rotated_at, created_at from refresh_tokens")
    assert tokens == [(digest("token"), begun.id, 1, None, NOW - HOUR)]


async def test_standing_tells_everything_a_request_is_judged_by(storage: Postgres, pool: Pool) -> None:
    ada = await add(storage, account(is_platform_owner=True))
    begun = await begin(storage, ada.id, "token")
    org = await add_organization(pool, "acme", "suspended")
    twin = await add_organization(pool, "twin")
    await add_member(pool, org, ada.id, "admin")
    plain = Standing(user_id=ada.id, email=ADA, email_verified_at=NOW, is_platform_owner=True, organization=None)
    async with storage.reading() as read:
        standing = read.sessions.standing
        assert await standing(begun.id, ada.id, None, NOW) == plain
        assert await standing(begun.id, ada.id, uuid4(), NOW) == plain
        assert await standing(begun.id, ada.id, org, NOW) == replace(
            plain,
            organization=OrganizationContext(org, "acme", OrganizationStatus.SUSPENDED, Role.ADMIN),
        )
        elsewhere = await standing(begun.id, ada.id, twin, NOW)
        assert elsewhere is not None
        assert elsewhere.organization is None, "being a member of one organization says nothing in another"


async def test_standing_is_of_ones_own_session_only(storage: Postgres, pool: Pool) -> None:
    await add(storage, ada := account(), eve := account(EVE, is_platform_owner=True))
    mine, hers = await begin(storage, ada.id, "ada"), await begin(storage, eve.id, "eve")
    org = await add_organization(pool, "acme")
    await add_member(pool, org, eve.id, "owner")
    async with storage.reading() as read:
        assert await read.sessions.standing(hers.id, ada.id, None, NOW) is None
        assert await read.sessions.standing(mine.id, eve.id, None, NOW) is None
        assert await read.sessions.standing(uuid4(), ada.id, None, NOW) is None
        found = await read.sessions.standing(mine.id, ada.id, org, NOW)
    assert found is not None
    assert (found.organization, found.is_platform_owner) == (None, False)


@pytest.mark.parametrize(
    "end",
    [
        "update sessions set ended_at = %(now)s",
        "update sessions set expires_at = %(now)s",
        "update users set deactivated_at = %(now)s",
        "update users set anonymized_at = %(now)s",
        "delete from users",
        "delete from sessions",
    ],
)
async def test_a_session_that_is_over_stands_for_nobody(storage: Postgres, pool: Pool, end: str) -> None:
    ada = await add(storage, account())
    begun = await begin(storage, ada.id, "token")
    async with storage.reading() as read:
        assert await read.sessions.standing(begun.id, ada.id, None, NOW)
    async with pool.connection() as connection:
        await connection.execute(end, {"now": NOW})
    async with storage.transaction(by=SYSTEM) as tx:
        assert await tx.sessions.standing(begun.id, ada.id, None, NOW) is None
        assert await tx.sessions.rotate(digest("token"), digest("next"), NOW, NOW + 30 * DAY) is None
        presented = await tx.sessions.presented(digest("token"), NOW)
    assert presented is None or not presented.session_is_live


async def test_standing_in_an_organization_tells_what_one_is_there(storage: Postgres, pool: Pool) -> None:
    await add(storage, ada := account(), eve := account(EVE))
    begun = await begin(storage, ada.id, "token")
    org, twin = await add_organization(pool, "acme", "pending"), await add_organization(pool, "twin", "rejected")
    await add_member(pool, org, ada.id, "admin")
    await add_member(pool, org, eve.id, "owner")
    await add_member(pool, twin, eve.id, "owner")
    context = OrganizationContext(org, "acme", OrganizationStatus.PENDING, Role.ADMIN)
    here = OrganizationStanding(org, "acme", OrganizationStatus.PENDING, Role.ADMIN, confirmed=False)
    there = OrganizationStanding(twin, "twin", OrganizationStatus.REJECTED, None, confirmed=False)
    async with storage.reading() as read:
        plain = await read.sessions.standing(begun.id, ada.id, None, NOW)
        assert plain is not None
        for token_org, organization in ((None, None), (org, context), (twin, None), (uuid4(), None)):
            for slug, acts_in in (("acme", here), ("twin", there), ("Acme", None), ("acm_", None), ("", None)):
                found = await read.sessions.standing_in(slug, begun.id, ada.id, token_org, NOW)
                assert found == replace(plain, organization=organization, acts_in=acts_in), (slug, token_org)


async def test_standing_in_an_organization_tells_whether_one_confirmed_it(storage: Postgres, pool: Pool) -> None:
    await add(storage, ada := account(), eve := account(EVE))
    begun = await begin(storage, ada.id, "token")
    org, twin = await add_organization(pool, "acme"), await add_organization(pool, "twin")
    for organization, person in ((org, ada), (org, eve), (twin, ada)):
        await add_member(pool, organization, person.id)
    confirmed = "update memberships set confirmed_at = %s where (org_id, user_id) = (%s, %s)"
    found = []
    for organization, person in ((org, eve), (twin, ada), (org, ada)):
        await run_sql(pool, confirmed, NOW, organization, person.id)
        async with storage.reading() as read:
            standing = await read.sessions.standing_in("acme", begun.id, ada.id, None, NOW)
        found.append(standing is not None and standing.acts_in is not None and standing.acts_in.confirmed)
    assert found == [False, False, True]


async def test_standing_in_an_organization_is_of_ones_own_session_only(storage: Postgres, pool: Pool) -> None:
    await add(storage, ada := account(), eve := account(EVE))
    mine, hers = await begin(storage, ada.id, "ada"), await begin(storage, eve.id, "eve")
    org = await add_organization(pool, "acme")
    await add_member(pool, org, ada.id, "owner")
    async with storage.reading() as read:
        for session_id, user_id in ((hers.id, ada.id), (mine.id, eve.id), (uuid4(), ada.id)):
            assert await read.sessions.standing_in("acme", session_id, user_id, org, NOW) is None


# Somebody behind the session


async def test_a_session_knows_who_impersonates(storage: Postgres, pool: Pool) -> None:
    await add(storage, ada := account(), support := account(EVE, is_platform_owner=True))
    behind, own = await begin(storage, ada.id, "token", impersonator_id=support.id), await begin(storage, ada.id, "own")
    await add_organization(pool, "acme")
    async with storage.reading() as read:
        for session, impersonator_id in ((behind, support.id), (own, None)):
            found = await read.sessions.standing(session.id, ada.id, None, NOW)
            inside = await read.sessions.standing_in("acme", session.id, ada.id, None, NOW)
            assert found is not None
            assert inside is not None
            assert found.impersonator_id == inside.impersonator_id == impersonator_id


@pytest.mark.parametrize(
    ("change", "goes_on"),
    [
        ("select 1", True),
        ("update users set is_platform_owner = false where email = 'eve@example.com'", False),
        ("update users set deactivated_at = now() where email = 'eve@example.com'", False),
        ("update users set anonymized_at = now() where email = 'eve@example.com'", False),
        ("delete from users where email = 'eve@example.com'", False),
        ("update users set is_platform_owner = true where email = 'ada@example.com'", False),
        ("update users set is_platform_owner = false where email = 'other@example.com'", True),
        ("update users set is_platform_owner = not is_platform_owner where email = 'third@example.com'", True),
    ],
)
async def test_a_session_of_an_impersonator_dies_with_their_right_to_it(storage: Postgres, pool: Pool, change: str, goes_on: bool) -> None:
    await add(storage, ada := account(), support := account(EVE, is_platform_owner=True))
    other, third = account("other@example.com", is_platform_owner=True), account("third@example.com")
    await add(storage, other, third)
    behind, own = await begin(storage, ada.id, "token", impersonator_id=support.id), await begin(storage, ada.id, "own")
    await begin(storage, ada.id, "another's", impersonator_id=other.id)  # which says nothing of this one
    await add_organization(pool, "acme")
    await run_sql(pool, change)
    async with storage.transaction(by=SYSTEM) as tx:
        assert (await tx.sessions.standing(behind.id, ada.id, None, NOW) is not None) == goes_on
        assert (await tx.sessions.standing_in("acme", behind.id, ada.id, None, NOW) is not None) == goes_on
        assert (await tx.sessions.rotate(digest("token"), digest("next"), NOW, NOW + DAY) is not None) == goes_on
        # The person's own session is another matter.
        assert await tx.sessions.standing(own.id, ada.id, None, NOW)
        assert await tx.sessions.standing_in("acme", own.id, ada.id, None, NOW)
        assert await tx.sessions.rotate(digest("own"), digest("own next"), NOW, NOW + DAY)


async def test_rotation_keeps_the_impersonator_and_the_end(storage: Postgres, pool: Pool) -> None:
    await add(storage, ada := account(), support := account(EVE, is_platform_owner=True))
    behind = await begin(storage, ada.id, "token", impersonator_id=support.id, expires_at=NOW + HOUR, ends_at=NOW + HOUR)
    await within(storage, lambda tx: tx.sessions.rotate(digest("token"), digest("next"), NOW, NOW + 30 * DAY))
    stored = await run_sql(pool, "select id, impersonator_id, expires_at, ends_at from sessions")
    assert stored == [(behind.id, support.id, NOW + HOUR, NOW + HOUR)]


# Rotation


async def test_rotation_tells_whose_session_it_is_and_makes_a_successor(storage: Postgres, pool: Pool) -> None:
    await add(storage, ada := account(), eve := account(EVE))
    begun, other = await begin(storage, ada.id, "first"), await begin(storage, eve.id, "eve")
    org = await add_organization(pool, "acme")
    await add_organization(pool, "twin")
    await add_member(pool, org, ada.id)
    await run_sql(pool, "update sessions set org_id = %s where id = %s", org, begun.id)
    async with storage.transaction(by=SYSTEM) as tx:
        assert await tx.sessions.rotate(digest("unknown"), digest("next"), NOW, NOW + DAY) is None
        assert await tx.sessions.rotate(digest("first"), digest("second"), NOW, NOW + 31 * DAY) == Refreshed(
            session_id=begun.id,
            user_id=ada.id,
            email=ADA,
            email_verified_at=NOW,
            ends_at=NOW + 90 * DAY,
            org_id=org,
            org_slug="acme",
        )
        assert await tx.sessions.rotate(digest("first"), digest("third"), NOW, NOW + DAY) is None
    tokens = await run_sql(
        pool, "select token_hash, session_id, generation, rotated_at, created_at from refresh_tokens order by generation, 2"
    )
    assert sorted(tokens, key=str) == sorted(
        [
            (digest("eve"), other.id, 1, None, NOW - HOUR),
            (digest("first"), begun.id, 1, NOW, NOW - HOUR),
            (digest("second"), begun.id, 2, None, NOW),
        ],
        key=str,
    )
    lives = await run_sql(pool, "select id, expires_at from sessions")
    assert set(lives) == {(begun.id, NOW + 31 * DAY), (other.id, NOW + 30 * DAY)}


async def test_rotation_never_outlives_the_absolute_end(storage: Postgres, pool: Pool) -> None:
    ada = await add(storage, account())
    await begin(storage, ada.id, "first")
    async with storage.transaction(by=SYSTEM) as tx:
        assert await tx.sessions.rotate(digest("first"), digest("second"), NOW, NOW + 365 * DAY)
    assert await run_sql(pool, "select expires_at = ends_at from sessions") == [(True,)]


@pytest.mark.parametrize(
    ("status", "member", "passes"),
    [("active", True, True), ("active", False, False), ("suspended", True, False), ("pending", True, False), ("rejected", True, False)],
)
async def test_rotation_asks_for_an_active_organization_and_membership(
    storage: Postgres, pool: Pool, status: str, member: bool, passes: bool
) -> None:
    await add(storage, ada := account(), eve := account(EVE))
    begun = await begin(storage, ada.id, "first")
    org, twin = await add_organization(pool, "acme", status), await add_organization(pool, "twin")
    await add_member(pool, twin, ada.id, "owner")  # of another organization, which does not help
    await add_member(pool, org, eve.id)  # somebody else, who does not either
    if member:
        await add_member(pool, org, ada.id, "admin")
    await run_sql(pool, "update sessions set org_id = %s", org)
    async with storage.transaction(by=SYSTEM) as tx:
        rotated = await tx.sessions.rotate(digest("first"), digest("second"), NOW, NOW + DAY)
        assert (rotated is not None) == passes
        if not passes:
            assert await tx.sessions.presented(digest("first"), NOW) == Presented(
                session_id=begun.id,
                rotated_at=None,
                is_previous=False,
                session_is_live=True,
                org_id=org,
                organization_status=OrganizationStatus(status),
                role=Role.ADMIN if member else None,
            )


async def test_what_is_known_of_a_token_that_was_used(storage: Postgres) -> None:
    ada = await add(storage, account())
    begun = await begin(storage, ada.id, "1")
    async with storage.transaction(by=SYSTEM) as tx:
        for number in (1, 2):
            assert await tx.sessions.rotate(digest(f"{number}"), digest(f"{number + 1}"), NOW + number * SECOND, NOW + DAY)
        known = [await tx.sessions.presented(digest(f"{number}"), NOW + 3 * SECOND) for number in (1, 2, 3, 4)]
    plain = Presented(
        session_id=begun.id, rotated_at=None, is_previous=False, session_is_live=True, org_id=None, organization_status=None, role=None
    )
    assert known == [
        replace(plain, rotated_at=NOW + SECOND),
        replace(plain, rotated_at=NOW + 2 * SECOND, is_previous=True),
        plain,
        None,
    ]


async def test_of_twenty_rotations_of_one_token_one_wins(storage: Postgres, pool: Pool) -> None:
    ada = await add(storage, account())
    await begin(storage, ada.id, "first")

    async def rotate(number: int) -> bool:
        async with storage.transaction(by=SYSTEM) as tx:
            return await tx.sessions.rotate(digest("first"), digest(f"next {number}"), NOW, NOW + DAY) is not None

    assert sum(await everyone(20, rotate)) == 1
    assert await run_sql(pool, "select generation from refresh_tokens order by 1") == [(1,), (2,)]


async def test_an_end_that_waits_for_a_rotation_ends_its_successor_too(storage: Postgres, pool: Pool) -> None:
    ada = await add(storage, account())
    begun = await begin(storage, ada.id, "first")
    async with trio.open_nursery() as nursery, storage.transaction(by=SYSTEM) as tx:
        assert await tx.sessions.rotate(digest("first"), digest("second"), NOW, NOW + DAY)
        nursery.start_soon(within, storage, lambda tx: tx.sessions.end(begun.id, NOW))
        await somebody_waits(pool)
    async with storage.transaction(by=SYSTEM) as tx:
        assert await tx.sessions.rotate(digest("second"), digest("third"), NOW, NOW + DAY) is None


async def test_a_rotation_that_waits_for_an_end_makes_no_successor(storage: Postgres, pool: Pool) -> None:
    ada = await add(storage, account())
    begun = await begin(storage, ada.id, "first")
    outcome: list[object] = []

    async def rotate() -> None:
        async with storage.transaction(by=SYSTEM) as tx:
            outcome.append(await tx.sessions.rotate(digest("first"), digest("second"), NOW, NOW + DAY))

    async with trio.open_nursery() as nursery, storage.transaction(by=SYSTEM) as tx:
        await tx.sessions.end(begun.id, NOW)
        nursery.start_soon(rotate)
        await somebody_waits(pool)
    assert outcome == [None]
    assert await run_sql(pool, "select count(*) from refresh_tokens where token_hash = %s", digest("second")) == [(0,)]


async def test_ending_sessions_touches_whom_it_names(storage: Postgres, pool: Pool) -> None:
    await add(storage, ada := account(), eve := account(EVE))
    one, two, three = [await begin(storage, ada.id, f"ada {number}") for number in range(3)]
    hers = await begin(storage, eve.id, "eve")

    async def ended() -> set[tuple[Any, ...]]:
        return set(await run_sql(pool, "select id, ended_at from sessions where ended_at is not null"))

    await within(storage, lambda tx: tx.sessions.end(one.id, NOW))
    assert await ended() == {(one.id, NOW)}
    await within(storage, lambda tx: tx.sessions.end_others(ada.id, two.id, NOW + SECOND))
    assert await ended() == {(one.id, NOW), (three.id, NOW + SECOND)}  # when it ended first is what counts
    await within(storage, lambda tx: tx.sessions.end_all(ada.id, NOW + 2 * SECOND))
    assert await ended() == {(one.id, NOW), (three.id, NOW + SECOND), (two.id, NOW + 2 * SECOND)}
    await within(storage, lambda tx: tx.sessions.end_others(eve.id, hers.id, NOW))
    assert hers.id not in {found[0] for found in await ended()}


async def test_sessions_end_in_one_organization_of_one_person(storage: Postgres, pool: Pool) -> None:
    await add(storage, ada := account(), eve := account(EVE))
    org, twin = await add_organization(pool, "acme"), await add_organization(pool, "twin")
    for number, (person, where) in enumerate([(ada, org), (ada, org), (ada, twin), (ada, None), (eve, org)]):
        begun = await begin(storage, person.id, f"{number}")
        await run_sql(pool, "update sessions set org_id = %s where id = %s", where, begun.id)
    async with storage.transaction(by=SYSTEM) as tx:
        await tx.sessions.end_in(uuid4(), ada.id, NOW)
        await tx.sessions.end_in(org, ada.id, NOW)
        await tx.sessions.end_in(org, ada.id, NOW + SECOND)
    ended = await run_sql(pool, "select user_id, org_id, ended_at from sessions where ended_at is not null")
    assert ended == [(ada.id, org, NOW)] * 2


# Selecting an organization


async def test_selecting_gives_the_session_its_organization_and_another_token(storage: Postgres, pool: Pool) -> None:
    await add(storage, ada := account(), eve := account(EVE))
    begun, other, hers = [await begin(storage, who, token) for who, token in ((ada.id, "first"), (ada.id, "other"), (eve.id, "eve"))]
    org = await add_organization(pool, "acme")
    ends_at = await within(storage, lambda tx: tx.sessions.select(begun.id, org, digest("second"), NOW, NOW + 31 * DAY))
    assert ends_at == NOW + 90 * DAY
    assert set(await run_sql(pool, "select id, org_id, expires_at, ends_at from sessions")) == {
        (begun.id, org, NOW + 31 * DAY, NOW + 90 * DAY),
        (other.id, None, NOW + 30 * DAY, NOW + 90 * DAY),
        (hers.id, None, NOW + 30 * DAY, NOW + 90 * DAY),
    }
    assert set(await run_sql(pool, "select token_hash, session_id, generation, rotated_at, created_at from refresh_tokens")) == {
        (digest("first"), begun.id, 1, NOW, NOW - HOUR),
        (digest("second"), begun.id, 2, None, NOW),
        (digest("other"), other.id, 1, None, NOW - HOUR),
        (digest("eve"), hers.id, 1, None, NOW - HOUR),
    }


async def test_selecting_never_outlives_the_absolute_end(storage: Postgres, pool: Pool) -> None:
    ada = await add(storage, account())
    begun = await begin(storage, ada.id, "first", ends_at=NOW + DAY, expires_at=NOW + HOUR)
    org = await add_organization(pool, "acme")
    assert await within(storage, lambda tx: tx.sessions.select(begun.id, org, digest("second"), NOW, NOW + 31 * DAY)) == NOW + DAY
    assert await run_sql(pool, "select expires_at = ends_at from sessions") == [(True,)]


@pytest.mark.parametrize("end", ["ended_at", "expires_at"])
async def test_a_session_that_is_over_selects_nothing(storage: Postgres, pool: Pool, end: str) -> None:
    ada = await add(storage, account())
    begun = await begin(storage, ada.id, "first")
    org = await add_organization(pool, "acme")
    await run_sql(pool, f"update sessions set {end} = %s", NOW)  # noqa: S608
    for session_id in (begun.id, uuid4()):
        async with storage.transaction(by=SYSTEM) as tx:
            assert await tx.sessions.select(session_id, org, digest("second"), NOW, NOW + DAY) is None
    assert await run_sql(pool, "select org_id from sessions") == [(None,)]
    assert await run_sql(pool, "select generation, rotated_at from refresh_tokens") == [(1, None)]


@pytest.mark.slow
async def test_of_twenty_selections_and_rotations_each_makes_one_successor_of_the_one_before(storage: Postgres, pool: Pool) -> None:
    ada = await add(storage, account())
    begun = await begin(storage, ada.id, "first")
    org = await add_organization(pool, "acme")
    await add_member(pool, org, ada.id)

    async def act(number: int) -> bool:
        async with storage.transaction(by=SYSTEM) as tx:
            new = digest(f"next {number}")
            if number % 2:
                return await tx.sessions.rotate(digest("first"), new, NOW, NOW + DAY) is not None
            return await tx.sessions.select(begun.id, org, new, NOW, NOW + DAY) is not None

    won = sum(await everyone(20, act))
    generations = await run_sql(pool, "select generation, rotated_at is null from refresh_tokens order by 1")
    assert generations == [(number, number == won + 1) for number in range(1, won + 2)]
    assert won >= 1


# The record of logins


async def test_every_field_of_a_login_is_stored(storage: Postgres, pool: Pool) -> None:
    ada = await add(storage, account())
    begun = uuid4()
    await within(storage, lambda tx: tx.logins.succeeded(ada.id, begun, "websuite", NOW, "203.0.113.9", "tests"))
    async with storage.counting() as count:
        await count.logins.failed(ada.id, "password", NOW + SECOND, "2001:db8::1", None)
    query = "select user_id, session_id, provider, success, address, agent, created_at, org_id from login_events order by created_at"
    assert await run_sql(pool, query) == [
        (ada.id, begun, "websuite", True, "203.0.113.9", "tests", NOW, None),
        (ada.id, None, "password", False, "2001:db8::1", None, NOW + SECOND, None),
    ]


async def test_a_failed_login_leaves_the_connection_as_careful_as_it_was(storage: Postgres, pool: Pool) -> None:
    ada = await add(storage, account())
    async with pool.connection() as connection:
        before = await connection.row("show synchronous_commit")
    async with storage.counting() as count:
        await count.logins.failed(ada.id, "password", NOW, None, None)
    async with pool.connection() as connection:
        assert await connection.row("show synchronous_commit") == before
