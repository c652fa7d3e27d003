"""Every statement about sessions, their refresh tokens and logins: each field, each condition, and that it touches nobody else's rows."""

from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
import trio
import trio.testing

from adapters.postgres.pool import Pool
from adapters.postgres.storage import Postgres
from core.access import SYSTEM, OrganizationContext, OrganizationStatus, Role, Standing
from core.sessions import Presented, Refreshed
from core.values import digest
from tests.adapters.rows import ADA, DAY, EVE, HOUR, NOW, SECOND, account, add, begin, within
from tests.builders import add_member, add_organization, everyone, run_sql


async def test_every_field_of_a_session_is_stored_and_its_token_is_not(storage: Postgres, pool: Pool) -> None:
    ada = await add(storage, account())
    begun = await begin(storage, ada.id, "token")
    stored = await run_sql(pool, "select id, user_id, created_at, expires_at, ends_at, address, agent, org_id, ended_at from sessions")
    assert stored == [(begun.id, ada.id, NOW - HOUR, NOW + 30 * DAY, NOW + 90 * DAY, "203.0.113.9", "tests", None, None)]
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
        await trio.testing.wait_all_tasks_blocked()
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
        await trio.testing.wait_all_tasks_blocked()
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
