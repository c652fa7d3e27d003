"""Sign-ins that wait for the second factor (security.md J-8)."""

from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID, uuid4

from adapters.postgres.pool import Pool
from adapters.postgres.storage import Postgres
from core.access import SYSTEM
from core.login import Pending
from core.values import Email
from tests.adapters.rows import EVE, NOW, SECOND, account, add, within
from tests.builders import everyone, run_sql

TTL = timedelta(seconds=600)
TRIES = 5


def pending(user_id: UUID) -> Pending:
    return Pending(id=uuid4(), user_id=user_id, service_id=uuid4(), provider="password", created_at=NOW, expires_at=NOW + TTL)


async def begin(storage: Postgres, email: Email = EVE) -> Pending:
    person = await add(storage, account(email=email))
    begun = pending(person.id)
    await within(storage, lambda tx: tx.pre_auths.add(begun))
    return begun


async def take(storage: Postgres, begun: Pending, *, after: timedelta = timedelta()) -> Pending | None:
    async with storage.counting() as count:
        found = await count.pre_auths.take_try(begun.id, TRIES, NOW + after)
    if found is None:
        return None
    pending, account = found
    async with storage.reading() as read:
        assert account == await read.accounts.by_id(pending.user_id)
    return pending


async def test_a_try_tells_what_waits(storage: Postgres) -> None:
    begun = await begin(storage)
    assert await take(storage, begun) == begun
    without = replace(begun, id=uuid4(), service_id=None)
    await within(storage, lambda tx: tx.pre_auths.add(without))
    assert await take(storage, without) == without
    assert await take(storage, replace(begun, id=uuid4())) is None


async def test_there_are_so_many_tries_and_no_more(storage: Postgres) -> None:
    begun = await begin(storage)
    taken = await everyone(20, lambda _: take(storage, begun))
    assert sum(one is not None for one in taken) == TRIES
    async with storage.counting() as count:
        await count.pre_auths.give_back_try(begun.id)
    assert await take(storage, begun) == begun
    assert await take(storage, begun) is None


async def test_it_lasts_until_its_end(storage: Postgres) -> None:
    begun = await begin(storage)
    assert await take(storage, begun, after=TTL - SECOND) == begun
    assert await take(storage, begun, after=TTL) is None
    assert await end(storage, begun, at=NOW + TTL) == (False, False)
    assert await end(storage, begun, at=NOW + TTL - SECOND) == (True, True)


async def end(storage: Postgres, begun: Pending, step: int = 1000, at: datetime = NOW) -> tuple[bool, bool]:
    """End it with the code of a step."""
    async with storage.transaction(by=SYSTEM) as tx:
        await tx.mfa.begin(begun.user_id, "SECRET", NOW)
        return await tx.mfa.accept_step(begun.id, begun.user_id, NOW, step, SYSTEM, at)


async def test_exactly_one_ends_it_well(storage: Postgres) -> None:
    begun = await begin(storage)
    outcomes = await everyone(20, lambda number: end(storage, begun, number + 1))
    assert sorted(outcomes) == [(False, False)] * 19 + [(True, True)]
    assert await take(storage, begun) is None


async def test_nobody_else_ends_it(storage: Postgres) -> None:
    begun, other = await begin(storage), await begin(storage, Email("grace@example.com"))
    assert await end(storage, replace(begun, user_id=other.user_id)) == (False, False)
    assert await take(storage, begun) == begun


async def test_all_of_a_person_end_and_nobody_elses(storage: Postgres, pool: Pool) -> None:
    begun, other = await begin(storage), await begin(storage, Email("grace@example.com"))
    await within(storage, lambda tx: tx.pre_auths.remove_all(begun.user_id))
    assert await run_sql(pool, "select id from pre_auths") == [(other.id,)]
