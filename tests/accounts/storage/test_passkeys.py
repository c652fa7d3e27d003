"""The statements about passkeys: their fields, and that no other account is touched."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

import pytest

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.accounts.model.passkeys import KnownPasskey, Passkey, PasskeyKind, PasskeyTaken, UsedChallenge, VerifiedAssertion
from core.kernel.causes import SYSTEM
from core.kernel.values import digest, new_id
from ports.storage import Transaction
from tests.support.builders import run_sql
from tests.support.rows import within

NOW: Final = datetime(2026, 3, 14, 15, 9, 26, tzinfo=UTC)
SECOND: Final = timedelta(seconds=1)


def passkey(user_id: UUID, name: str = "Key", **changes: Any) -> Passkey:
    """Return a passkey with a different value in every field."""
    id_ = new_id()
    return replace(
        Passkey(
            id=id_,
            user_id=user_id,
            kind=PasskeyKind.PASSKEY,
            name=name,
            credential_id=digest(str(id_)),
            public_key=b"a key",
            algorithm=-257,
            rp_id="sso.example.com",
            sign_count=4_294_967_295,
            aaguid=new_id(),
            backup_eligible=True,
            backed_up=False,
            user_verified=False,
            transports=("hybrid", "internal"),
            created_at=NOW,
            last_used_at=NOW + SECOND,
            refused_at=NOW + 2 * SECOND,
        ),
        **changes,
    )


@pytest.fixture
def users(user: UUID, eve: UUID) -> tuple[UUID, UUID]:
    return user, eve


async def add(storage: Postgres, *passkeys: Passkey) -> None:
    for each in passkeys:
        await within(storage, lambda tx, one=each: tx.passkeys.add(one))  # type: ignore[misc]


async def counts(pool: Pool) -> list[int]:
    return [row[0] for row in await run_sql(pool, "select passkey_count from users order by email")]


async def test_every_field_is_stored(storage: Postgres, pool: Pool, users: tuple[UUID, UUID]) -> None:
    mine, other = passkey(users[0]), passkey(users[1])
    later = passkey(users[0], created_at=NOW + SECOND)
    await add(storage, later, other, mine)
    async with storage.reading() as read:
        assert await read.passkeys.of_user(users[0]) == [mine, later]
        assert await read.passkeys.by_id(users[0], mine.id) == mine
        assert await read.passkeys.by_id(users[1], mine.id) is None
        assert await read.passkeys.by_credential(mine.credential_id) == KnownPasskey(mine, None)
        assert await read.passkeys.by_credential(b"another") is None
    assert await counts(pool) == [2, 1]
    with pytest.raises(PasskeyTaken):
        await add(storage, replace(passkey(users[1]), credential_id=mine.credential_id))
    assert await counts(pool) == [2, 1]


async def test_the_handle_stays(storage: Postgres, users: tuple[UUID, UUID]) -> None:
    first, second = bytes(64), b"x" * 64
    assert await within(storage, lambda tx: tx.passkeys.handle(users[0], first)) == first
    assert await within(storage, lambda tx: tx.passkeys.handle(users[0], second)) == first
    assert await within(storage, lambda tx: tx.passkeys.handle(users[1], second)) == second


async def test_the_rp_id_stays_as_long_as_passkeys_have_it(storage: Postgres, users: tuple[UUID, UUID]) -> None:
    async def store(rp_id: str) -> str | None:
        async def change(tx: Transaction) -> None:
            await tx.passkeys.lock_rp_id(f"https://{rp_id}")
            await tx.passkeys.set_rp_id(rp_id)

        await within(storage, change)
        return await read_rp_id()

    async def read_rp_id() -> str | None:
        async with storage.reading() as read:
            return await read.passkeys.rp_id()

    assert await read_rp_id() is None
    mine = passkey(users[0], rp_id="old.test")
    await add(storage, mine)
    assert await store("typo.test") is None, "no passkey has it"
    assert await store("old.test") == "old.test"
    await within(storage, lambda tx: tx.passkeys.remove(users[0], mine.id, NOW))
    assert await read_rp_id() is None


async def test_users_are_counted_by_rp_id(storage: Postgres, users: tuple[UUID, UUID]) -> None:
    old = [passkey(user, rp_id="old.test") for user in (users[0], users[0], users[1])]
    await add(storage, *old, passkey(users[0], rp_id="new.test"))
    async with storage.reading() as read:
        assert await read.passkeys.users_by_rp_id("new.test") == {"new.test": 1, "old.test": 1}
        assert await read.passkeys.users_by_rp_id("old.test") == {"old.test": 2}


async def test_a_challenge_is_used_once(storage: Postgres) -> None:
    challenge = UsedChallenge(digest("challenge"), NOW)
    assert [await within(storage, lambda tx: tx.passkeys.use_challenge(challenge)) for _ in range(2)] == [True, False]


async def test_changes_touch_one_passkey(storage: Postgres, pool: Pool, users: tuple[UUID, UUID]) -> None:
    mine, second, other = passkey(users[0]), passkey(users[0], created_at=NOW + SECOND), passkey(users[1])
    await add(storage, mine, second, other)
    await within(storage, lambda tx: tx.passkeys.rename(users[1], mine.id, "Stolen"))
    await within(storage, lambda tx: tx.passkeys.rename(users[0], mine.id, "Renamed"))
    assert not await within(storage, lambda tx: tx.passkeys.remove(users[1], mine.id, NOW))
    async with storage.reading() as read:
        assert await read.passkeys.of_user(users[0]) == [replace(mine, name="Renamed"), second]
        assert await read.passkeys.of_user(users[1]) == [other]
    assert await within(storage, lambda tx: tx.passkeys.remove(users[0], mine.id, NOW))
    assert await counts(pool) == [1, 1]
    await within(storage, lambda tx: tx.passkeys.remove_all(users[0]))
    assert await counts(pool) == [0, 1]
    assert await run_sql(pool, "select count(*) from former_passkeys") == [(0,)]


async def test_an_undo_returns_to_the_time_before(storage: Postgres, pool: Pool, users: tuple[UUID, UUID]) -> None:
    since = NOW + 10 * SECOND
    before, added, other = passkey(users[0]), passkey(users[0], created_at=since), passkey(users[1], created_at=since)
    gone = passkey(users[0], created_at=since)
    await add(storage, before, added, other, gone)
    for each in (before, gone):
        await within(storage, lambda tx, one=each: tx.passkeys.remove(users[0], one.id, since + SECOND))  # type: ignore[misc]
    assert await within(storage, lambda tx: tx.passkeys.remove_added_since(users[0], since)) == [added.id]
    assert await within(storage, lambda tx: tx.passkeys.restore(users[0], since)) == [before]
    async with storage.reading() as read:
        assert await read.passkeys.of_user(users[0]) == [before]
        assert await read.passkeys.of_user(users[1]) == [other]
    assert await counts(pool) == [1, 1]


@pytest.mark.parametrize(
    ("known", "seen", "is_used"),
    [
        ({"backup_eligible": False, "sign_count": 5}, 6, True),
        ({"backup_eligible": False, "sign_count": 5}, 5, False),
        ({"backup_eligible": False, "sign_count": 0}, 0, True),
        ({"backup_eligible": True, "sign_count": 5}, 3, True),
    ],
)
async def test_a_use_is_stored_if_the_counter_allows_it(
    storage: Postgres, users: tuple[UUID, UUID], known: dict[str, Any], seen: int, is_used: bool
) -> None:
    mine, other = passkey(users[0], **known), passkey(users[1])
    await add(storage, mine, other)
    backup_eligible = known["backup_eligible"]
    answer = VerifiedAssertion(
        sign_count=seen,
        backup_eligible=backup_eligible,
        backed_up=True,
        user_verified=True,
        challenge=UsedChallenge(digest("challenge"), NOW),
    )
    async with storage.transaction(by=SYSTEM) as tx:
        redeemed = await tx.passkeys.redeem(mine, answer, NOW + 9 * SECOND)
        assert redeemed is not None
        assert (redeemed.account.id, redeemed.is_used, redeemed.is_first) == (users[0], is_used, is_used)
    used = replace(mine, sign_count=max(seen, mine.sign_count), backed_up=True, user_verified=True, last_used_at=NOW + 9 * SECOND)
    async with storage.reading() as read:
        assert await read.passkeys.of_user(users[0]) == [used if is_used else mine]
        assert await read.passkeys.of_user(users[1]) == [other]


async def test_a_refusal_is_news_once_in_a_while(storage: Postgres, users: tuple[UUID, UUID]) -> None:
    mine = passkey(users[0], refused_at=None)
    await add(storage, mine)
    for number, is_news in ((0, True), (1, False), (10, True)):
        at = NOW + number * SECOND
        answer = await within(storage, lambda tx, at=at: tx.passkeys.mark_refused(users[0], mine.id, at - 9 * SECOND, at))  # type: ignore[misc]
        assert answer is is_news
    assert not await within(storage, lambda tx: tx.passkeys.mark_refused(users[1], mine.id, NOW + 99 * SECOND, NOW))
