"""Codes and backup codes, and turning the second factor off (security M-3, M-4, M-5)."""

from typing import Final

import pytest

from adapters.postgres.engine.pool import Pool
from tests.accounts.api.mfa.mfa_user import MfaUser, logged_events, queued_emails
from tests.fakes.outside import FakeClock, FakeMailTransport
from tests.support.builders import EMAIL, add_account, deliver, run_sql
from tests.support.mfa import STEP, add_mfa, use_in_sessions
from tests.support.refusals import BAD, refused


async def recorded_names(pool: Pool) -> list[str]:
    """Return the event names and audit entry names from all organizations, in order."""
    events = await run_sql(pool, "select name from events where name like %s order by created_at", "%mfa%")
    entries = await run_sql(pool, "select 'log: ' || action from audit_log order by created_at")
    return [name for (name,) in [*events, *entries]]


async def test_the_code_that_confirmed_the_setup_is_used_up(user: MfaUser, clock: FakeClock) -> None:
    app = await user.enable()
    assert not await user.accepts_code(app.code())
    assert not await user.accepts_code(app.code(-1))
    assert await user.accepts_code(app.code(1)), "a code of the next step, from a clock that is ahead"
    clock.advance(STEP)
    assert not await user.accepts_code(app.code())


@pytest.mark.slow
async def test_every_backup_code_works_once(user: MfaUser, clock: FakeClock) -> None:
    app = await user.enable()
    for left, code in enumerate(reversed(app.backup_codes)):
        assert await user.status() == (True, True), left
        assert await user.accepts_code(code)
        assert not await user.accepts_code(code)
    assert await user.status() == (True, False), "no code is left"
    clock.advance(STEP)
    assert await user.accepts_code(app.code())


async def test_the_use_of_a_backup_code_is_logged_and_emailed(user: MfaUser, pool: Pool, clock: FakeClock, sent: FakeMailTransport) -> None:
    app = await user.enable()
    clock.advance(STEP)
    before = len(await logged_events(pool)), len(await queued_emails(pool))
    await user.use_code(app.backup_codes[0])
    assert (await logged_events(pool))[before[0] :] == ["mfa_verify_attempt", "mfa_verify_success", "backup_code_used"]
    assert (await queued_emails(pool))[before[1] :] == [("backup_code_used", EMAIL)]
    await deliver(user.ports)
    assert [email.to for email in sent.emails if email.subject == "A backup code was used - Gatehouse"] == [EMAIL]


# Disabling, and new backup codes


async def test_disabling_deletes_the_secret_and_the_codes(user: MfaUser, pool: Pool, clock: FakeClock) -> None:
    app = await user.enable()
    answer = await user.disable()
    assert answer.status == 200
    assert answer.json.keys() == {"success", "message"}
    assert answer.json["success"] is True
    assert await user.status() == (False, False)
    assert await run_sql(pool, "select user_id from mfa union all select user_id from backup_codes") == []
    assert await run_sql(pool, "select mfa_enabled_at from users") == [(None,)]
    clock.advance(STEP)
    assert not await user.accepts_code(app.code())
    assert not await user.accepts_code(app.backup_codes[0])
    new_app = await user.enable()
    assert new_app.secret != app.secret
    assert not set(new_app.backup_codes) & set(app.backup_codes)
    clock.advance(STEP)
    assert [await user.accepts_code(code) for code in (app.code(), app.backup_codes[0], new_app.code())] == [False, False, True]


async def test_disabling_an_inactive_second_factor_succeeds_and_records_nothing(user: MfaUser, pool: Pool) -> None:
    app = await user.start_setup()
    before = await logged_events(pool)
    for _ in range(2):
        answer = await user.disable()
        assert (answer.status, answer.json["success"], answer.json.keys()) == (200, True, {"success", "message"})
    assert (await logged_events(pool), await recorded_names(pool), await queued_emails(pool)) == (before, [], [])
    assert refused(await user.verify(app.code())) == BAD, "the pending secret is deleted"


async def test_regenerating_replaces_all_earlier_codes(user: MfaUser, pool: Pool) -> None:
    app = await user.enable()
    await user.use_code(app.backup_codes[0])
    answer = await user.regenerate()
    assert answer.status == 200
    assert answer.json.keys() == {"backup_codes"}
    new = answer.json["backup_codes"]
    assert len(set(new)) == len(new) == 10
    assert not set(new) & set(app.backup_codes)
    assert [await user.accepts_code(code) for code in (*app.backup_codes[:3], *new[:2])] == [False, False, False, True, True]
    assert (await queued_emails(pool))[2] == ("backup_codes_regenerated", EMAIL)


async def test_regenerating_works_when_all_codes_are_used(user: MfaUser, pool: Pool) -> None:
    await add_mfa(user.ports, user.account, backup_codes=["ABCD-EFGH"])
    await use_in_sessions(pool, user.account)
    await user.use_code("ABCD-EFGH")
    assert await user.status() == (True, False)
    await user.regenerate()
    assert await user.status() == (True, True)


async def test_regenerating_while_off_is_refused(user: MfaUser, pool: Pool) -> None:
    for begin in (False, True):
        if begin:
            await user.setup()
        assert refused(await user.regenerate()) == BAD
    assert await run_sql(pool, "select 1 from backup_codes") == []
    assert await queued_emails(pool) == []


# Adds a trusted device to every account.
TRUSTED_DEVICES: Final = """
    insert into devices (id, user_id, name, device_type, browser, os, last_used_at, risk_score, risk_factors, trust_hash,
                         trust_expires_at, created_at, updated_at)
    select gen_random_uuid(), id, 'Laptop', 'browser', 'Firefox', 'Linux', now(), 0, '{}', decode(md5(id::text), 'hex'),
           now() + interval '90 days', now(), now() from users"""
PENDING_SIGN_INS: Final = """
    insert into sign_in_flows (id, target, request, wants_fresh, keeps_trust, user_id, proofs, proofs_expire_at, begun_at, expires_at)
    select gen_random_uuid(), 'api', '', false, true, id, '[]', now() + interval '10 minutes', now(), 'infinity' from users"""


@pytest.mark.parametrize("act", ["enable", "disable"])
async def test_enabling_and_disabling_end_device_trust_and_pending_sign_ins(user: MfaUser, pool: Pool, clock: FakeClock, act: str) -> None:
    other_user = await add_account(user.ports, "eve@example.com", None)
    app = await user.enable() if act == "disable" else await user.start_setup()
    await run_sql(pool, TRUSTED_DEVICES)
    await run_sql(pool, PENDING_SIGN_INS)
    answer = await user.disable() if act == "disable" else await user.verify(app.code())
    assert answer.status == 200
    assert await run_sql(pool, "select user_id from devices where trust_hash is not null") == [(other_user.id,)]
    assert await run_sql(pool, "select user_id from sign_in_flows") == [(other_user.id,)]
    assert (await user.api.get("/api/user", token=user.token)).status == 200, "the session continues"
