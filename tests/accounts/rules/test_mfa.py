"""What the second factor is made of, without a database."""

from datetime import UTC, datetime, timedelta

from core.accounts.events import mfa_disabled, mfa_enabled
from core.accounts.mfa_rules import ALPHABET, BACKUP_CODES, FAILURES, SETUP_TTL, MfaEnrollment, MfaEvent, MfaSetup, VerifiedCode
from core.kernel.values import new_id

NOW = datetime(2026, 3, 14, 15, 9, 26, tzinfo=UTC)
PENDING = MfaEnrollment(secret="SECRET", setup_at=NOW, enabled_at=None, last_step=None, codes_salt=None)


def test_the_log_tells_the_eleven_documented_events() -> None:
    assert {*MfaEvent} == {
        *("mfa_setup_initiated", "mfa_setup_completed", "mfa_setup_failed", "mfa_enabled", "mfa_disabled", "mfa_force_disabled_by_admin"),
        *("mfa_verify_attempt", "mfa_verify_success", "mfa_verify_failed", "backup_codes_generated", "backup_code_used"),
    }
    assert {"mfa_setup_failed", "mfa_verify_failed"} == FAILURES


def test_backup_codes_have_forty_bits_of_letters_that_are_not_mistaken() -> None:
    assert len(set(ALPHABET)) == len(ALPHABET) == 32
    assert not set("I1O0") & set(ALPHABET)
    assert len(ALPHABET) ** 8 == 2**40
    assert BACKUP_CODES == 10


def test_what_was_set_up_can_be_confirmed_for_a_quarter_of_an_hour() -> None:
    assert timedelta(minutes=15) == SETUP_TTL
    assert PENDING.is_pending(NOW)
    assert PENDING.is_pending(NOW + SETUP_TTL - timedelta(microseconds=1))
    assert not PENDING.is_pending(NOW + SETUP_TTL)


def test_what_is_shown_shows_no_secret() -> None:
    shown = repr([PENDING, MfaSetup("SECRET", "otpauth://SECRET"), VerifiedCode(code_hash=b"SECRET")])
    assert "SECRET" not in shown


def test_webhooks_and_logs_are_told_of_the_person_and_nothing_secret() -> None:
    user = new_id()
    told = [*mfa_enabled(user), *mfa_disabled(user), *mfa_disabled(user, forced=True)]
    assert [event.kind.name for event in told[:4]] == [
        *("user.mfa.enabled", "security.mfa.enabled", "user.mfa.disabled", "security.mfa.disabled"),
    ]
    assert [event.kind.audited for event in told[:4]] == [False, True, False, True]
    assert {(event.target_id, event.of_person, event.org_id) for event in told} == {(str(user), user, None)}
    assert [event.details for event in told] == [{}, {}, *[{"forced": False}] * 2, *[{"forced": True}] * 2]
