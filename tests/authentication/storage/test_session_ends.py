"""Statements that end or remove sessions."""

from typing import Any
from uuid import UUID, uuid4

import trio

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.kernel.causes import SYSTEM
from core.kernel.values import digest
from core.tenancy.model.members import LiveSessions
from tests.support.builders import add_organization, run_sql
from tests.support.rows import DAY, EVE, HOUR, NOW, SECOND, account, add, begin, until_blocked, within
from tests.support.services import add_service, service_context


async def test_an_end_that_waits_for_a_rotation_ends_its_successor_too(storage: Postgres, pool: Pool) -> None:
    user = await add(storage, account())
    session = await begin(storage, user.id, "first")
    async with trio.open_nursery() as nursery, storage.transaction(by=SYSTEM) as tx:
        assert await tx.refresh_tokens.rotate(digest("first"), digest("second"), NOW, NOW + DAY)
        nursery.start_soon(within, storage, lambda tx: tx.sessions.end(session.id, NOW))
        await until_blocked(pool)
    async with storage.transaction(by=SYSTEM) as tx:
        assert await tx.refresh_tokens.rotate(digest("second"), digest("third"), NOW, NOW + DAY) is None


async def test_a_rotation_that_waits_for_an_end_adds_no_successor(storage: Postgres, pool: Pool) -> None:
    user = await add(storage, account())
    session = await begin(storage, user.id, "first")
    outcome: list[object] = []

    async def rotate() -> None:
        async with storage.transaction(by=SYSTEM) as tx:
            outcome.append(await tx.refresh_tokens.rotate(digest("first"), digest("second"), NOW, NOW + DAY))

    async with trio.open_nursery() as nursery, storage.transaction(by=SYSTEM) as tx:
        await tx.sessions.end(session.id, NOW)
        nursery.start_soon(rotate)
        await until_blocked(pool)
    assert outcome == [None]
    assert await run_sql(pool, "select count(*) from refresh_tokens where token_hash = %s", digest("second")) == [(0,)]


async def test_ending_sessions_affects_only_the_named_user(storage: Postgres, pool: Pool) -> None:
    await add(storage, user := account(), eve := account(EVE))
    one, two, three = [await begin(storage, user.id, f"ada {number}") for number in range(3)]
    eves_session = await begin(storage, eve.id, "eve")

    async def ends() -> set[tuple[Any, ...]]:
        return set(await run_sql(pool, "select id, ended_at from sessions where ended_at is not null"))

    await within(storage, lambda tx: tx.sessions.end(one.id, NOW))
    assert await ends() == {(one.id, NOW)}
    await within(storage, lambda tx: tx.sessions.end_others(user.id, two.id, NOW + SECOND))
    assert await ends() == {(one.id, NOW), (three.id, NOW + SECOND)}  # the first end stays
    await within(storage, lambda tx: tx.sessions.end_all(user.id, NOW + 2 * SECOND))
    assert await ends() == {(one.id, NOW), (three.id, NOW + SECOND), (two.id, NOW + 2 * SECOND)}
    await within(storage, lambda tx: tx.sessions.end_others(eve.id, eves_session.id, NOW))
    assert eves_session.id not in {id_ for id_, _ in await ends()}


async def test_only_sessions_of_the_user_in_the_organization_end(storage: Postgres, pool: Pool) -> None:
    await add(storage, user := account(), eve := account(EVE))
    org, other_tenant = await add_organization(pool, "acme"), await add_organization(pool, "twin")
    for number, (member, org_id) in enumerate([(user, org), (user, org), (user, other_tenant), (user, None), (eve, org)]):
        session = await begin(storage, member.id, f"{number}")
        await run_sql(pool, "update sessions set org_id = %s where id = %s", org_id, session.id)
    async with storage.transaction(by=SYSTEM) as tx:
        assert await tx.organization_sessions.end(uuid4(), [user.id], NOW) == 0
        assert await tx.organization_sessions.end(org, [user.id], NOW) == 2
        assert await tx.organization_sessions.end(org, [user.id], NOW + SECOND) == 0
    rows = await run_sql(pool, "select user_id, org_id, ended_at from sessions where ended_at is not null")
    assert rows == [(user.id, org, NOW)] * 2


async def test_the_count_of_live_sessions_matches_those_that_end(storage: Postgres, pool: Pool) -> None:
    await add(storage, user := account(), eve := account(EVE))
    acme, other_tenant = [await add_organization(pool, slug) for slug in ("acme", "twin")]
    shop, deleted, other = [await add_service(pool, org, slug) for org, slug in ((acme, "shop"), (acme, "deleted"), (other_tenant, "shop"))]
    contexts = {service: await service_context(pool, service) for service in (shop, deleted, other)}
    live_sessions = [
        await begin(storage, user.id, "of a service", service=contexts[shop], created_at=NOW - 3 * HOUR),
        await begin(storage, user.id, "of a service again", service=contexts[shop], created_at=NOW - 2 * HOUR),
        with_organization := await begin(storage, user.id, "selected", created_at=NOW - 4 * HOUR),
    ]
    await run_sql(pool, "update sessions set org_id = %s where id = %s", acme, with_organization.id)
    for token, target, service, expires_at in (
        ("expired", user.id, shop, NOW),
        ("of a deleted service", user.id, deleted, NOW + DAY),
        ("of another organization", user.id, other, NOW + DAY),
        ("of eve", eve.id, shop, NOW + DAY),
    ):
        await begin(storage, target, token, service=contexts[service], expires_at=expires_at)
    await begin(storage, user.id, "of the platform")
    ended_session = await begin(storage, user.id, "ended", service=contexts[shop])
    await within(storage, lambda tx: tx.sessions.end(ended_session.id, NOW - SECOND))
    await run_sql(pool, "delete from services where id = %s", deleted)
    async with storage.transaction(by=SYSTEM) as tx:
        assert await tx.organization_sessions.count_live(acme, user.id, NOW) == LiveSessions(3, NOW - 2 * HOUR)
        assert await tx.organization_sessions.count_live(acme, eve.id, NOW) == LiveSessions(1, NOW - HOUR)
        assert await tx.organization_sessions.count_live(uuid4(), user.id, NOW) == LiveSessions(0, None)
        assert await tx.organization_sessions.end(acme, [user.id], NOW) == 3
        assert await tx.organization_sessions.count_live(acme, user.id, NOW) == LiveSessions(0, None)
        assert await tx.organization_sessions.count_live(other_tenant, user.id, NOW) == LiveSessions(1, NOW - HOUR)
    rows = await run_sql(pool, "select id from sessions where ended_at = %s", NOW)
    assert {row[0] for row in rows} == {session.id for session in live_sessions}


# Removal


async def test_a_removal_deletes_sessions_and_tokens_even_of_ended_sessions(storage: Postgres, pool: Pool) -> None:
    await add(storage, user := account(), eve := account(EVE))
    org = await add_organization(pool, "acme")
    shop, second = [await service_context(pool, await add_service(pool, org, slug)) for slug in ("shop", "second")]
    sessions = {
        (target.id, service): await begin(storage, target.id, f"{target.id} {service}", service=service)
        for target in (user, eve)
        for service in (None, shop, second)
    }
    await within(storage, lambda tx: tx.sessions.end(sessions[user.id, shop].id, NOW))

    async def remaining_ids() -> set[UUID]:
        rows = await run_sql(pool, "select s.id from sessions s join refresh_tokens t on t.session_id = s.id")
        return {id_ for (id_,) in rows}

    await within(storage, lambda tx: tx.sessions.remove(user.id, NOW, shop.id))
    assert await remaining_ids() == {session.id for key, session in sessions.items() if key != (user.id, shop)}
    await within(storage, lambda tx: tx.sessions.remove(user.id, NOW))
    assert await remaining_ids() == {session.id for (user_id, _), session in sessions.items() if user_id == eve.id}
    assert await run_sql(pool, "select count(*) from sessions") == [(3,)]


async def test_a_removal_that_waits_for_a_rotation_removes_its_successor_too(storage: Postgres, pool: Pool) -> None:
    """A rotation locks the token and then the session. A removal that locked the session first would deadlock."""
    user = await add(storage, account())
    session = await begin(storage, user.id, "first")
    insert_successor = "insert into refresh_tokens (token_hash, session_id, generation, created_at) values (%s, %s, 2, now())"
    async with trio.open_nursery() as nursery, pool.connection() as connection, connection.transaction():
        await connection.execute("update refresh_tokens set rotated_at = now()")
        nursery.start_soon(within, storage, lambda tx: tx.sessions.remove(user.id, NOW))
        await until_blocked(pool)
        await connection.execute("update sessions set expires_at = expires_at + interval '1 day'")
        await connection.execute(insert_successor, (digest("second"), session.id))
    assert await run_sql(pool, "select count(*) from sessions") == await run_sql(pool, "select count(*) from refresh_tokens") == [(0,)]
