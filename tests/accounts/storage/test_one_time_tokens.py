"""Every statement about one-time tokens: fields, conditions, and that a token works once."""

from datetime import datetime
from uuid import UUID

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres, Transaction
from core.accounts.model.email_queue import OneTimeToken, TokenPurpose
from core.kernel.causes import SYSTEM
from core.kernel.values import Email, digest
from tests.support.builders import run_concurrently, run_sql
from tests.support.rows import ADA, DAY, EVE, HOUR, MICROSECOND, NOW, SECOND, account, add, within


async def add_token(
    tx: Transaction, token: str, purpose: TokenPurpose, user: UUID, email: Email = ADA, expires_at: datetime = NOW + HOUR
) -> None:
    await tx.one_time_tokens.add(OneTimeToken(digest(token), purpose, user, email, created_at=NOW - HOUR, expires_at=expires_at))


async def test_every_field_is_stored_but_not_the_token_itself(storage: Postgres, pool: Pool) -> None:
    user = await add(storage, account())
    await within(storage, lambda tx: add_token(tx, "t", TokenPurpose.RESET_PASSWORD, user.id))
    rows = await run_sql(pool, "select purpose, token_hash, user_id, email, created_at, expires_at, used_at from one_time_tokens")
    assert rows == [("reset_password", digest("t"), user.id, ADA, NOW - HOUR, NOW + HOUR, None)]


async def test_a_token_works_once_for_its_purpose_until_it_expires(storage: Postgres, pool: Pool) -> None:
    user = await add(storage, account())
    async with storage.transaction(by=SYSTEM) as tx:
        tokens = tx.one_time_tokens
        await add_token(tx, "t", TokenPurpose.RESET_PASSWORD, user.id)
        await add_token(tx, "other", TokenPurpose.RESET_PASSWORD, user.id, EVE)
        assert await tokens.live_email(digest("t"), TokenPurpose.RESET_PASSWORD, NOW)
        assert await tokens.live_email(digest("t"), TokenPurpose.RESET_PASSWORD, NOW + HOUR - MICROSECOND)
        assert not await tokens.live_email(digest("t"), TokenPurpose.RESET_PASSWORD, NOW + HOUR)
        assert not await tokens.live_email(digest("t"), TokenPurpose.VERIFY_EMAIL, NOW)
        assert not await tokens.live_email(digest("T"), TokenPurpose.RESET_PASSWORD, NOW)
        assert await tokens.redeem(digest("t"), TokenPurpose.RESET_PASSWORD, NOW + HOUR) is None
        assert await tokens.redeem(digest("t"), TokenPurpose.VERIFY_EMAIL, NOW) is None
        assert await tokens.redeem(digest("x"), TokenPurpose.RESET_PASSWORD, NOW) is None
        assert await tokens.redeem(digest("t"), TokenPurpose.RESET_PASSWORD, NOW) == ADA
        assert await tokens.redeem(digest("t"), TokenPurpose.RESET_PASSWORD, NOW) is None
        assert not await tokens.live_email(digest("t"), TokenPurpose.RESET_PASSWORD, NOW)
        assert await tokens.redeem(digest("other"), TokenPurpose.RESET_PASSWORD, NOW + SECOND) == EVE
    assert await run_sql(pool, "select used_at from one_time_tokens order by used_at") == [(NOW,), (NOW + SECOND,)]


async def test_a_used_verification_token_tells_the_verified_address_of_its_account(storage: Postgres, pool: Pool) -> None:
    user = await add(storage, account())

    async def found(token: str = "t") -> Email | None:
        async with storage.reading() as read:
            return await read.one_time_tokens.verified_email(digest(token))

    async with storage.transaction(by=SYSTEM) as tx:
        await add_token(tx, "t", TokenPurpose.VERIFY_EMAIL, user.id)
        await add_token(tx, "reset", TokenPurpose.RESET_PASSWORD, user.id)
    await run_sql(pool, "update users set email_verified_at = now()")
    assert await found() is None, "it is not used"
    await run_sql(pool, "update one_time_tokens set used_at = now()")
    assert [await found(), await found("reset"), await found("x")] == [ADA, None, None]
    for change in ("email = 'moved@example.com'", "email_verified_at = null", "deactivated_at = now()", "anonymized_at = now()"):
        await run_sql(pool, f"update users set {change}")  # noqa: S608
        assert await found() is None, change
        await run_sql(pool, "update users set email = %s, email_verified_at = now(), deactivated_at = null, anonymized_at = null", ADA)


async def test_of_20_concurrent_redemptions_one_succeeds(storage: Postgres) -> None:
    user = await add(storage, account())
    await within(storage, lambda tx: add_token(tx, "t", TokenPurpose.VERIFY_EMAIL, user.id))
    won = await run_concurrently(
        20, lambda _: within(storage, lambda tx: tx.one_time_tokens.redeem(digest("t"), TokenPurpose.VERIFY_EMAIL, NOW))
    )
    assert sorted(won, key=str) == [None] * 19 + [ADA] or sorted(won, key=str) == [ADA] + [None] * 19


async def test_voiding_deletes_the_tokens_of_one_user_and_purpose(storage: Postgres, pool: Pool) -> None:
    await add(storage, user := account(), eve := account(EVE))
    async with storage.transaction(by=SYSTEM) as tx:
        for target, name in ((user, "ada"), (eve, "eve")):
            for purpose in TokenPurpose:
                await add_token(tx, f"{name} {purpose} 1", purpose, target.id)
                await add_token(tx, f"{name} {purpose} 2", purpose, target.id)
        await tx.one_time_tokens.void(user.id, TokenPurpose.RESET_PASSWORD)
    rows = await run_sql(pool, "select user_id, purpose, count(*) from one_time_tokens group by 1, 2")
    kept = {(target.id, str(purpose), 2) for target in (user, eve) for purpose in TokenPurpose}
    assert set(rows) == kept - {(user.id, "reset_password", 2)}


async def test_a_later_token_is_newer_while_it_is_unused(storage: Postgres) -> None:
    await add(storage, user := account(), eve := account(EVE))
    async with storage.transaction(by=SYSTEM) as tx:
        newer = tx.one_time_tokens.newer_exists
        await add_token(tx, "t", TokenPurpose.RESET_PASSWORD, user.id)  # created an hour ago
        unused = [
            newer(user.email, TokenPurpose.RESET_PASSWORD, NOW - HOUR - MICROSECOND),
            newer(user.email, TokenPurpose.RESET_PASSWORD, NOW - HOUR),
            newer(user.email, TokenPurpose.VERIFY_EMAIL, NOW - DAY),
            newer(eve.email, TokenPurpose.RESET_PASSWORD, NOW - DAY),
        ]
        assert await tx.one_time_tokens.redeem(digest("t"), TokenPurpose.RESET_PASSWORD, NOW)
        used = newer(user.email, TokenPurpose.RESET_PASSWORD, NOW - DAY)
    assert [await row for row in unused] == [True, False, False, False]
    assert not await used


async def test_a_token_belongs_to_its_account(storage: Postgres) -> None:
    await add(storage, user := account(), eve := account(EVE))
    async with storage.transaction(by=SYSTEM) as tx:
        await add_token(tx, "ada", TokenPurpose.VERIFY_EMAIL, user.id)
        await add_token(tx, "eve", TokenPurpose.VERIFY_EMAIL, eve.id)
        assert await tx.accounts.lock_by_token(digest("eve"), TokenPurpose.VERIFY_EMAIL) == eve
        assert await tx.accounts.lock_by_token(digest("eve"), TokenPurpose.RESET_PASSWORD) is None
