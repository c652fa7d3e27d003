"""Tests of the storage of pending sign-ins (security J-8)."""

from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID, uuid4

import pytest

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.accounts.model.attempt_limits import AttemptLimit
from core.accounts.model.mfa import attempt_subject
from core.authentication.model.identities import PendingIdentity
from core.authentication.model.login import PendingSignIn
from core.kernel.causes import SYSTEM
from core.kernel.connections import CODEHOST
from core.kernel.providers import ProviderTokens
from core.kernel.values import Email, digest
from ports.crypto import SealBroken
from tests.support.builders import run_concurrently, run_sql
from tests.support.rows import EVE, NOW, SECOND, account, add, within

TTL = timedelta(seconds=600)
MAX_CODE_ATTEMPTS = 5


def pending(user_id: UUID) -> PendingSignIn:
    return PendingSignIn(id=uuid4(), user_id=user_id, service_id=uuid4(), provider="password", created_at=NOW, expires_at=NOW + TTL)


async def begin(storage: Postgres, email: Email = EVE) -> PendingSignIn:
    person = await add(storage, account(email=email))
    sign_in = pending(person.id)
    await within(storage, lambda tx: tx.pre_auths.add(sign_in))
    return sign_in


async def count_attempt(storage: Postgres, sign_in: PendingSignIn, *, after: timedelta = timedelta()) -> PendingSignIn | None:
    async with storage.autocommit() as count:
        tried = await count.pre_auths.count_attempt(
            sign_in.id, sign_in.user_id, MAX_CODE_ATTEMPTS, attempt_subject(sign_in.user_id), AttemptLimit(12, TTL), NOW + after
        )
    if tried is None:
        return None
    async with storage.reading() as read:
        assert tried.account == await read.accounts.by_id(tried.pending.user_id)
        assert tried.enrollment == await read.mfa.enrollment(tried.pending.user_id)
    return tried.pending if tried.blocked_until is None else None


async def failures(pool: Pool, user_id: UUID) -> int:
    """Return the number of counted attempts at the user's second factor."""
    rows = await run_sql(pool, "select failures from guesses where secret = 'mfa' and subject = %s", digest(str(user_id)))
    return int(rows[0][0]) if rows else 0


async def test_an_attempt_returns_the_pending_sign_in(storage: Postgres) -> None:
    sign_in = await begin(storage)
    assert await count_attempt(storage, sign_in) == sign_in
    without = replace(sign_in, id=uuid4(), service_id=None)
    await within(storage, lambda tx: tx.pre_auths.add(without))
    assert await count_attempt(storage, without) == without
    assert await count_attempt(storage, replace(sign_in, id=uuid4())) is None


TOKENS = ProviderTokens("an access token", "a refresh token", NOW, ("repo", "user"))
UNLINKED = PendingIdentity(uuid4(), CODEHOST, "https://codehost.example", "4711", EVE, TOKENS, known_elsewhere=True)
WITHOUT_EMAIL = PendingIdentity(
    None, CODEHOST, "https://codehost.example", "1", None, ProviderTokens("x", None, None, ()), known_elsewhere=False
)


@pytest.mark.parametrize("unlinked", [UNLINKED, WITHOUT_EMAIL])
async def test_the_pending_identity_is_stored_with_the_sign_in(storage: Postgres, unlinked: PendingIdentity) -> None:
    person = await add(storage, account())
    sign_in, without_identity = (
        replace(pending(person.id), provider="codehost", identity=unlinked),
        replace(pending(person.id), provider="codehost"),
    )
    for one in (sign_in, without_identity):
        await within(storage, lambda tx, one=one: tx.pre_auths.add(one))  # type: ignore[misc]
    assert [await count_attempt(storage, one) for one in (sign_in, without_identity, sign_in)] == [sign_in, without_identity, sign_in]


async def test_tokens_are_encrypted_for_their_sign_in_and_column(storage: Postgres, pool: Pool) -> None:
    person = await add(storage, account())
    sign_in, other = [replace(pending(person.id), provider="codehost", identity=UNLINKED) for _ in range(2)]
    for one in (sign_in, other):
        await within(storage, lambda tx, one=one: tx.pre_auths.add(one))  # type: ignore[misc]
    rows = await run_sql(pool, "select access_token, refresh_token from pre_auths")
    assert not any(b"token" in value for row in rows for value in row)
    for expression in ("refresh_token", "(select p.access_token from pre_auths p where p.id <> pre_auths.id)"):
        await run_sql(pool, f"update pre_auths set access_token = {expression} where id = %s", sign_in.id)  # noqa: S608
        with pytest.raises(SealBroken):
            await count_attempt(storage, sign_in)
    assert await count_attempt(storage, other) == other


async def test_after_the_last_attempt_nothing_more_is_counted(storage: Postgres, pool: Pool) -> None:
    sign_in = await begin(storage)
    results = await run_concurrently(20, lambda _: count_attempt(storage, sign_in))
    assert sum(result is not None for result in results) == MAX_CODE_ATTEMPTS
    assert await failures(pool, sign_in.user_id) == MAX_CODE_ATTEMPTS


async def test_counting_an_attempt_leaves_the_connection_synchronous(storage: Postgres, pool: Pool) -> None:
    sign_in = await begin(storage)
    await run_sql(pool, "set synchronous_commit = on")  # it is off in the tests
    try:
        assert await count_attempt(storage, sign_in) == sign_in
        assert await run_sql(pool, "show synchronous_commit") == [("on",)]
    finally:
        await run_sql(pool, "reset synchronous_commit")


async def test_attempts_at_all_sign_ins_of_a_user_count_together_and_a_blocked_attempt_does_not(storage: Postgres, pool: Pool) -> None:
    sign_in = await begin(storage)
    other_sign_ins = [replace(sign_in, id=uuid4()) for _ in range(3)]
    for other in other_sign_ins:
        await within(storage, lambda tx, other=other: tx.pre_auths.add(other))  # type: ignore[misc]
    results = await run_concurrently(20, lambda number: count_attempt(storage, [sign_in, *other_sign_ins][number % 4]))
    assert sum(result is not None for result in results) == 12
    assert await failures(pool, sign_in.user_id) == 12
    assert await run_sql(pool, "select sum(failures) from pre_auths") == [(12,)]
    async with storage.autocommit() as count:
        tried = await count.pre_auths.count_attempt(
            sign_in.id, sign_in.user_id, 100, attempt_subject(sign_in.user_id), AttemptLimit(12, TTL), NOW + SECOND
        )
    assert tried is not None
    assert tried.blocked_until == NOW + timedelta(seconds=30)


async def test_a_pending_sign_in_lives_until_it_expires(storage: Postgres) -> None:
    sign_in = await begin(storage)
    assert await count_attempt(storage, sign_in, after=TTL - SECOND) == sign_in
    assert await count_attempt(storage, sign_in, after=TTL) is None
    assert await complete(storage, sign_in, at=NOW + TTL) is None
    assert await complete(storage, sign_in, at=NOW + TTL - SECOND) is True


async def complete(storage: Postgres, sign_in: PendingSignIn, step: int = 1000, at: datetime = NOW) -> bool | None:
    """Complete the sign-in with the code of a time step. Return whether the step was accepted, or None if the sign-in has ended."""
    async with storage.transaction(by=SYSTEM) as tx:
        await tx.mfa.save_pending_secret(sign_in.user_id, "SECRET", NOW)
        accepted = tx.mfa.redeem_step_deferred(sign_in.id, sign_in.user_id, NOW, step, SYSTEM, at)
    return None if accepted.value is None else accepted.value.code_taken


async def test_exactly_one_request_completes_a_sign_in(storage: Postgres) -> None:
    sign_in = await begin(storage)
    outcomes = await run_concurrently(20, lambda number: complete(storage, sign_in, number + 1))
    assert Counter(outcomes) == {None: 19, True: 1}
    assert await count_attempt(storage, sign_in) is None


async def test_another_user_cannot_complete_a_sign_in(storage: Postgres) -> None:
    sign_in, other = await begin(storage), await begin(storage, Email("grace@example.com"))
    assert await complete(storage, replace(sign_in, user_id=other.user_id)) is None
    assert await count_attempt(storage, sign_in) == sign_in


async def test_removing_all_sign_ins_of_a_user_keeps_those_of_others(storage: Postgres, pool: Pool) -> None:
    sign_in, other = await begin(storage), await begin(storage, Email("grace@example.com"))
    await within(storage, lambda tx: tx.pre_auths.remove_all(sign_in.user_id))
    assert await run_sql(pool, "select id from pre_auths") == [(other.id,)]
