"""The events, log entries and emails about the second factor (security M-6)."""

import pytest

from adapters.postgres.engine.pool import Pool
from core.accounts.model.email_queue import EmailKind
from tests.accounts.api.mfa.mfa_user import MfaUser, logged_events, queued_emails
from tests.fakes.outside import FakeClock, FakeMailTransport
from tests.support.builders import EMAIL, add_member, add_organization, deliver, run_sql
from tests.support.mfa import STEP


async def test_organizations_of_confirmed_memberships_are_notified(user: MfaUser, pool: Pool) -> None:
    orgs = {slug: await add_organization(pool, slug) for slug in ("acme", "twin", "loose")}
    for slug, org in orgs.items():
        await add_member(pool, org, user.account.id, confirmed=slug != "loose")
    await user.enable()
    await user.disable()
    names = ("enabled", "disabled")
    confirmed_orgs = {orgs["acme"], orgs["twin"]}
    for table, column, prefix in (("audit_log", "action", "security"), ("events", "name", "security"), ("events", "name", "user")):
        for name in names:
            query = f"select org_id, target_id, actor_id from {table} where {column} = %s"  # noqa: S608
            rows = await run_sql(pool, query, f"{prefix}.mfa.{name}")
            assert {row[0] for row in rows} == confirmed_orgs
            assert {row[1:] for row in rows} == {(str(user.account.id), user.account.id)}
    assert await run_sql(pool, "select 1 from audit_log where action like 'user.%%'") == []


async def test_the_platform_log_records_users_without_an_organization(user: MfaUser, pool: Pool) -> None:
    await user.enable()
    assert await run_sql(pool, "select org_id, action from audit_log") == [(None, "security.mfa.enabled")]


@pytest.mark.slow
async def test_the_log_of_the_second_factor_is_complete(user: MfaUser, pool: Pool, clock: FakeClock) -> None:
    app = await user.start_setup()
    clock.advance(STEP)
    await user.verify(app.wrong())
    clock.advance(STEP)
    await user.verify(app.code())
    clock.advance(STEP)
    await user.accepts_code(app.wrong())
    clock.advance(STEP)
    await user.use_code(app.code())
    clock.advance(STEP)
    await user.regenerate()
    clock.advance(STEP)
    await user.disable()
    assert await logged_events(pool) == [
        "mfa_setup_initiated",
        "mfa_setup_failed",
        *("mfa_setup_completed", "mfa_enabled", "backup_codes_generated"),
        *("mfa_verify_attempt", "mfa_verify_failed"),
        *("mfa_verify_attempt", "mfa_verify_success"),
        "backup_codes_generated",
        "mfa_disabled",
    ]
    rows = await run_sql(pool, "select distinct user_id, address is null from mfa_events where event_type like 'mfa_setup%%'")
    assert rows == [(user.account.id, False)]


async def test_the_user_gets_an_email_about_every_change(user: MfaUser, pool: Pool, sent: FakeMailTransport, clock: FakeClock) -> None:
    app = await user.enable()
    await user.regenerate()
    clock.advance(STEP)
    await user.use_code(app.code())
    await user.disable()
    await deliver(user.ports)
    subjects = {email.subject.removesuffix(" - Gatehouse"): email.to for email in sent.emails}
    assert subjects == dict.fromkeys(
        ["Two-factor authentication is on", "You have new backup codes", "Two-factor authentication is off"], EMAIL
    )
    assert {kind for kind, _ in await queued_emails(pool)} == {
        EmailKind.MFA_ENABLED,
        EmailKind.BACKUP_CODES_REGENERATED,
        EmailKind.MFA_DISABLED,
    }
