"""Attempt limits for the second factor, and other accounts (security M-2)."""

from datetime import timedelta

import pytest

from adapters.postgres.engine.pool import Pool
from core.accounts import mfa
from core.accounts.model import mfa as mfa_model
from core.accounts.model.attempt_limits import TooManyAttempts
from core.kernel.access import AccountGone
from tests.accounts.api.mfa.mfa_user import MfaUser, logged_events
from tests.fakes.outside import FakeClock
from tests.support.builders import add_account, run_sql, sign_in
from tests.support.mfa import STEP, add_mfa, show
from tests.support.refusals import BAD, refused

LIMITED = (429, "RATE_LIMIT_EXCEEDED")


async def test_ten_wrong_codes_block_all_codes_of_the_account(user: MfaUser, clock: FakeClock) -> None:
    app = await user.start_setup()
    assert [refused(await user.verify(app.wrong())) for _ in range(10)] == [BAD] * 10
    blocked = await user.verify(app.code())
    assert refused(blocked) == LIMITED
    assert blocked.headers["Retry-After"] == "900"
    assert "code" in blocked.json["error"]
    assert "password" not in blocked.json["error"]
    with pytest.raises(TooManyAttempts):
        await show(user.ports, user.account, app.code())
    clock.advance(timedelta(seconds=900))
    user.token = (await sign_in(user.ports, user.account)).access_token
    app = await user.start_setup()
    assert [refused(await user.verify(app.wrong())) for _ in range(9)] == [BAD] * 9
    assert (await user.verify(app.code())).status == 200


async def test_attempts_at_sign_in_and_at_setup_are_counted_together(user: MfaUser, pool: Pool) -> None:
    app = await user.enable()
    assert [await user.accepts_code("ABCD-EFGH") for _ in range(5)] == [False] * 5
    await run_sql(pool, "update users set mfa_enabled_at = null")
    app = await user.start_setup()
    assert [refused(await user.verify(app.wrong())) for _ in range(5)] == [BAD] * 5
    assert refused(await user.verify(app.code())) == LIMITED


@pytest.mark.slow
async def test_a_correct_code_clears_the_failed_attempts(user: MfaUser, clock: FakeClock) -> None:
    app = await user.start_setup()
    assert [refused(await user.verify(app.wrong())) for _ in range(9)] == [BAD] * 9
    assert (await user.verify(app.code())).status == 200
    for _ in range(3):
        clock.advance(STEP)
        assert [await user.accepts_code(app.wrong()) for _ in range(9)] == [False] * 9
        assert await user.accepts_code(app.code())


async def test_failed_attempts_of_all_sessions_are_counted_together(user: MfaUser) -> None:
    app = await user.start_setup()
    for _ in range(10):
        user.token = (await sign_in(user.ports, user.account)).access_token
        assert refused(await user.verify(app.wrong())) == BAD
    assert refused(await user.verify(app.code())) == LIMITED


async def test_other_accounts_do_not_change(user: MfaUser, pool: Pool, clock: FakeClock) -> None:
    other_user = await add_account(user.ports, "eve@example.com", None)
    app = await add_mfa(user.ports, other_user)
    query = "select m.*, u.mfa_enabled_at from mfa m join users u on u.id = m.user_id where u.id = %s"
    codes = "select * from backup_codes where user_id = %s order by code_hash"
    before = await run_sql(pool, query, other_user.id), await run_sql(pool, codes, other_user.id)
    users_app = await user.enable()
    await user.regenerate()
    clock.advance(STEP)
    assert not await user.accepts_code(app.code())
    assert not await user.accepts_code(app.backup_codes[0])
    await user.use_code(users_app.code())
    await user.disable()
    assert (await run_sql(pool, query, other_user.id), await run_sql(pool, codes, other_user.id)) == before


async def test_a_deleted_account_is_refused(user: MfaUser, pool: Pool) -> None:
    await run_sql(pool, "delete from users")
    for act in (mfa.get_status, mfa.start_setup, mfa.disable, mfa.regenerate_backup_codes):
        with pytest.raises(AccountGone):
            await act(user.ports, user.person)
    with pytest.raises(mfa_model.NotSetUp):
        await mfa.confirm_setup(user.ports, user.person, "123456")
    assert await logged_events(pool) == []
