"""Every statement about second factors and their log."""

from datetime import timedelta
from uuid import UUID, uuid4

import pytest

from adapters.crypto import AesVault
from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.accounts.model.attempt_limits import AttemptLimit, SecretKind
from core.accounts.model.mfa import FactorLifetime, FactorSwitch, FirstFactor, MfaEnrollment, MfaEvent, MfaStatus, attempt_subject
from core.kernel.callers import Person
from core.kernel.causes import SYSTEM, Anonymous
from core.kernel.values import Email
from ports.crypto import SealBroken
from tests.fakes.outside import FakeClock
from tests.support.builders import run_concurrently, run_sql
from tests.support.mfa import waiting_flow
from tests.support.rows import ADA, EVE, MICROSECOND, NOW, SECOND, account, add, within

SALT, HASHES = b"salt", [b"hash %d" % number for number in range(10)]


@pytest.fixture
async def user(storage: Postgres) -> UUID:
    """An account without a second factor. Another account has a second factor."""
    users = await add(storage, account(), account(EVE))
    async with storage.transaction(by=SYSTEM) as tx:
        eve = await tx.accounts.by_email(EVE)
        assert eve is not None
        await tx.mfa.save_pending_secret(eve.id, "EVE", NOW)
        await tx.mfa.use_step(eve.id, NOW, 1000)
        await tx.mfa.replace_codes(eve.id, SALT, HASHES)
        await tx.accounts.set_mfa(eve.id, NOW, NOW)
    return users.id


async def start_setup(storage: Postgres, user: UUID, secret: str = "SECRET") -> None:
    await within(storage, lambda tx: tx.mfa.save_pending_secret(user, secret, NOW))


async def use_step(storage: Postgres, user: UUID, step: int, setup_at: timedelta = timedelta()) -> bool:
    return await within(storage, lambda tx: tx.mfa.use_step(user, NOW + setup_at, step))


async def other_rows(pool: Pool, user: UUID) -> list[object]:
    """Return all rows for other accounts."""
    tables = ("mfa", "backup_codes", "mfa_events")
    return [row for table in tables for row in await run_sql(pool, f"select * from {table} where user_id <> %s order by 2", user)]  # noqa: S608


async def test_a_new_setup_replaces_a_pending_one(storage: Postgres, user: UUID) -> None:
    async with storage.reading() as read:
        assert await read.mfa.enrollment(user) == MfaEnrollment(None, None, None, None, None)
        assert await read.mfa.enrollment(uuid4()) is None
    await start_setup(storage, user, "FIRST")
    await use_step(storage, user, 7)
    await within(storage, lambda tx: tx.mfa.replace_codes(user, SALT, HASHES))
    await within(storage, lambda tx: tx.mfa.save_pending_secret(user, "SECOND", NOW + SECOND))
    async with storage.reading() as read:
        enrollment = await read.mfa.enrollment(user)
    assert enrollment is not None
    assert (enrollment.secret, enrollment.setup_at, enrollment.enabled_at, enrollment.last_step, enrollment.codes_salt) == (
        "SECOND",
        NOW + SECOND,
        None,
        None,
        SALT,  # backup codes for passkeys stay
    )


async def test_the_enrollment_and_the_status_have_the_time_of_enabling(storage: Postgres, user: UUID) -> None:
    await start_setup(storage, user)
    await within(storage, lambda tx: tx.accounts.set_mfa(user, NOW + SECOND, NOW))
    async with storage.reading() as read:
        enrollment = await read.mfa.enrollment(user)
        assert await read.mfa.status(user) == MfaStatus(NOW + SECOND, None, has_keys=False, backup_codes=0)
        assert await read.mfa.status(uuid4()) is None
    assert enrollment is not None
    assert enrollment.enabled_at == NOW + SECOND


async def test_secrets_are_stored_sealed(storage: Postgres, pool: Pool, clock: FakeClock, user: UUID) -> None:
    await start_setup(storage, user)
    [(sealed,)] = await run_sql(pool, "select secret from mfa where user_id = %s", user)
    assert b"SECRET" not in sealed
    await run_sql(pool, "update mfa set secret = %s where user_id <> %s", sealed, user)
    async with storage.reading() as read:
        eve = await read.accounts.by_email(EVE)
        assert eve is not None
        with pytest.raises(SealBroken):
            await read.mfa.enrollment(eve.id)
    async with Postgres(pool, AesVault([("other", b"x" * 32)]), clock).reading() as read:
        with pytest.raises(SealBroken):
            await read.mfa.enrollment(user)


async def test_a_step_and_earlier_ones_can_be_used_only_once(storage: Postgres, pool: Pool, user: UUID) -> None:
    await start_setup(storage, user)
    untouched = await other_rows(pool, user)
    assert [await use_step(storage, user, step) for step in (10, 10, 9, 11, 12, 11)] == [True, False, False, True, True, False]
    assert not await use_step(storage, user, 13, setup_at=MICROSECOND), "a step of another secret"
    assert not await use_step(storage, uuid4(), 13)
    assert await other_rows(pool, user) == untouched


@pytest.mark.slow
async def test_of_20_concurrent_uses_of_a_step_one_succeeds(storage: Postgres, user: UUID) -> None:
    await start_setup(storage, user)
    for step in range(1, 6):
        assert (await run_concurrently(20, lambda _, step=step: use_step(storage, user, step))).count(True) == 1  # type: ignore[misc]


async def use_code(storage: Postgres, user: UUID, code: bytes) -> bool:
    """Return whether a pending sign-in uses up this backup code."""
    pending = waiting_flow(user, NOW)
    assert pending.proofs_expire_at is not None
    first = FirstFactor(pending.id, None, user, pending.proofs_expire_at)
    async with storage.transaction(by=SYSTEM) as tx:
        await tx.flows.add(pending)
        accepted = await tx.mfa.redeem_backup_code(first, code, SYSTEM, NOW)
    assert accepted is not None
    assert accepted.account.id == user
    return accepted.code_taken


async def test_a_redeemed_code_is_logged_and_clears_the_failed_attempts(storage: Postgres, pool: Pool, user: UUID) -> None:
    await start_setup(storage, user)
    await within(storage, lambda tx: tx.mfa.replace_codes(user, SALT, HASHES))
    limit = AttemptLimit(12, timedelta(hours=1))
    for subject in (attempt_subject(user), attempt_subject(uuid4())):
        async with storage.autocommit() as statements:
            await statements.attempt_limits.count_attempt(SecretKind.MFA, subject, limit, NOW)
    events = "select event_type, success, created_at from mfa_events order by created_at"
    before = await run_sql(pool, events)
    assert not await use_code(storage, user, b"another")
    assert await run_sql(pool, events) == before
    assert await run_sql(pool, "select count(*) from guesses") == [(2,)]
    assert await use_code(storage, user, HASHES[0])
    names = ("mfa_verify_attempt", "mfa_verify_success", "backup_code_used")
    assert await run_sql(pool, events) == [*before, *((name, True, NOW + n * MICROSECOND) for n, name in enumerate(names))]
    assert await run_sql(pool, "select count(*) from guesses where subject = %s", attempt_subject(user)) == [(0,)]
    assert await run_sql(pool, "select count(*) from guesses") == [(1,)]


async def test_a_backup_code_works_once(storage: Postgres, pool: Pool, user: UUID) -> None:
    await start_setup(storage, user)
    await within(storage, lambda tx: tx.mfa.replace_codes(user, SALT, HASHES))
    untouched = await other_rows(pool, user)

    async def use(code: bytes) -> bool:
        return await use_code(storage, user, code)

    async with storage.reading() as read:
        assert [await read.mfa.has_unused_code(user, code) for code in (HASHES[3], b"other")] == [True, False]
    assert [await use(code) for code in (HASHES[3], HASHES[3], b"other", HASHES[4])] == [True, False, False, True]
    async with storage.reading() as read:
        assert [await read.mfa.has_unused_code(user, code) for code in HASHES[2:6]] == [True, False, False, True]
        status = await read.mfa.status(user)
    assert status == MfaStatus(None, None, has_keys=False, backup_codes=8)
    assert await other_rows(pool, user) == untouched


@pytest.mark.slow
async def test_of_20_concurrent_uses_of_a_backup_code_one_succeeds(storage: Postgres, user: UUID) -> None:
    await start_setup(storage, user)
    await within(storage, lambda tx: tx.mfa.replace_codes(user, SALT, HASHES))
    for code in HASHES[:5]:

        async def use(_: int, code: bytes = code) -> bool:
            return await use_code(storage, user, code)

        results = await run_concurrently(20, use)
        assert results.count(True) == 1


async def test_new_codes_replace_all_others(storage: Postgres, pool: Pool, user: UUID) -> None:
    await start_setup(storage, user)
    untouched = await other_rows(pool, user)
    await within(storage, lambda tx: tx.mfa.replace_codes(user, SALT, HASHES))
    assert await use_code(storage, user, HASHES[0])
    await within(storage, lambda tx: tx.mfa.replace_codes(user, b"pepper", [b"new", b"newer"]))
    query = "select code_hash, used_at from backup_codes where user_id = %s order by code_hash"
    assert await run_sql(pool, query, user) == [(b"new", None), (b"newer", None)]
    async with storage.reading() as read:
        enrollment = await read.mfa.enrollment(user)
    assert enrollment is not None
    assert enrollment.codes_salt == b"pepper"
    assert await other_rows(pool, user) == untouched


async def test_removing_deletes_everything_but_the_log(storage: Postgres, pool: Pool, user: UUID) -> None:
    await start_setup(storage, user)
    await within(storage, lambda tx: tx.mfa.replace_codes(user, SALT, HASHES))
    await within(storage, lambda tx: tx.mfa.log(user, [MfaEvent.ENABLED], SYSTEM, NOW))
    untouched = await other_rows(pool, user)
    for _ in range(2):
        await within(storage, lambda tx: tx.mfa.remove(user))
    assert (
        await run_sql(pool, "select 1 from mfa where user_id = %s union all select 1 from backup_codes where user_id = %s", user, user)
        == []
    )
    assert await run_sql(pool, "select event_type from mfa_events") == [("mfa_enabled",)]
    assert await other_rows(pool, user) == untouched


# The log

LOG_QUERY = "select event_type, success, actor_id, impersonator_id, reason, address, agent from mfa_events order by created_at"


async def test_the_log_has_the_actor_and_the_origin_of_each_event(storage: Postgres, pool: Pool, user: UUID) -> None:
    owner, helper = uuid4(), uuid4()
    herself = Person(user_id=user, email=ADA, session_id=uuid4(), address="203.0.113.9", agent="tests")
    visitor = Anonymous(address="198.51.100.1")
    another = Person(user_id=owner, email=Email("owner@example.com"), session_id=uuid4(), impersonator_id=helper)
    async with storage.autocommit() as at_once:
        await at_once.mfa.log(user, [MfaEvent.SETUP_INITIATED], herself, NOW)
        await at_once.mfa.log(user, [MfaEvent.VERIFY_ATTEMPT, MfaEvent.VERIFY_FAILED], visitor, NOW + SECOND)
    await within(storage, lambda tx: tx.mfa.log(user, [MfaEvent.FORCE_DISABLED], another, NOW + 2 * SECOND, reason="lost it"))
    assert await run_sql(pool, LOG_QUERY) == [
        ("mfa_setup_initiated", True, None, None, None, "203.0.113.9", "tests"),
        ("mfa_verify_attempt", False, None, None, None, "198.51.100.1", None),
        ("mfa_verify_failed", False, None, None, None, "198.51.100.1", None),
        ("mfa_force_disabled_by_admin", True, owner, helper, "lost it", None, None),
    ]


@pytest.mark.parametrize("event", MfaEvent)
async def test_every_event_can_be_logged(storage: Postgres, pool: Pool, user: UUID, event: MfaEvent) -> None:
    await within(storage, lambda tx: tx.mfa.log(user, [event], SYSTEM, NOW))
    failed = event in (MfaEvent.SETUP_FAILED, MfaEvent.VERIFY_FAILED, MfaEvent.PASSKEY_REFUSED, MfaEvent.RECOVERY_FAILED)
    assert await run_sql(pool, "select event_type, success, created_at from mfa_events") == [(event.value, not failed, NOW)]


async def test_events_of_one_action_keep_their_order(storage: Postgres, pool: Pool, user: UUID) -> None:
    events = [*MfaEvent]
    for number in range(3):
        await within(storage, lambda tx, at=NOW + number * SECOND: tx.mfa.log(user, events, SYSTEM, at))  # type: ignore[misc]
    rows = await run_sql(pool, "select event_type, created_at from mfa_events order by created_at")
    assert [name for name, _ in rows] == [event.value for event in events] * 3
    assert [at for _, at in rows][: len(events)] == [NOW + number * MICROSECOND for number in range(len(events))]


async def test_nothing_is_logged_about_anonymized_or_deleted_accounts(storage: Postgres, pool: Pool, user: UUID) -> None:
    await run_sql(pool, "update users set anonymized_at = now() where id = %s", user)
    async with storage.autocommit() as count:
        for target in (user, uuid4()):
            await count.mfa.log(target, [MfaEvent.VERIFY_ATTEMPT, MfaEvent.VERIFY_FAILED], SYSTEM, NOW)
    assert await run_sql(pool, "select 1 from mfa_events where user_id = %s", user) == []


async def test_the_history_has_the_switches_since_a_time_and_each_factor_of_the_account(storage: Postgres, pool: Pool, user: UUID) -> None:
    await start_setup(storage, user)
    [(other,)] = await run_sql(pool, "select id from users where id <> %s", user)
    off, on, force = MfaEvent.DISABLED, MfaEvent.PASSKEY_ENABLED, MfaEvent.FORCE_DISABLED
    async with storage.transaction(by=SYSTEM) as tx:
        for owner in (user, other):
            await tx.mfa.log(owner, [MfaEvent.ENABLED], SYSTEM, NOW)
            await tx.mfa.log(owner, [MfaEvent.VERIFY_SUCCESS], SYSTEM, NOW + SECOND)
        for event in (on, off, force):
            await tx.mfa.log(user, [event], SYSTEM, NOW + SECOND)
        await tx.mfa.retire(user, NOW - SECOND, NOW)
        await tx.accounts.set_mfa(user, NOW + SECOND, NOW)
    async with storage.reading() as read:
        switches = await read.mfa.switches(user, NOW + MICROSECOND)
        assert (switches[0], {switch.event for switch in switches}) == (FactorSwitch(NOW + SECOND, on), {on, off, force})
        assert [switch.event for switch in await read.mfa.switches(other, NOW)] == [MfaEvent.ENABLED]
        lifetimes = sorted(await read.mfa.lifetimes(user, None), key=lambda each: each.added_at)
    assert lifetimes == [
        FactorLifetime(is_key=False, added_at=NOW - SECOND, removed_at=NOW),
        FactorLifetime(is_key=False, added_at=NOW + SECOND, removed_at=None),
    ]
