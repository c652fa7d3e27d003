"""Rules for second factors, and their events."""

from datetime import UTC, datetime, timedelta

from core.accounts.events import mfa_disabled, mfa_enabled
from core.accounts.factors import backup_codes, totp
from core.accounts.factors.backup_codes import BACKUP_CODES, VerifiedBackupCode
from core.accounts.factors.codes import KINDS, CodeKind
from core.accounts.model.mfa import CODE_ALPHABET, FAILURES, SETUP_TTL, MfaEnrollment, MfaEvent, MfaSetup
from core.kernel.proofs import FactorKind
from core.kernel.values import new_id
from tests.tables import table

NOW = datetime(2026, 3, 14, 15, 9, 26, tzinfo=UTC)
PENDING = MfaEnrollment(secret="SECRET", setup_at=NOW, enabled_at=None, last_step=None, codes_salt=None)


def test_the_log_has_the_documented_events() -> None:
    assert {*MfaEvent} == {
        *("mfa_setup_initiated", "mfa_setup_completed", "mfa_setup_failed", "mfa_enabled", "mfa_disabled", "mfa_force_disabled_by_admin"),
        *("mfa_verify_attempt", "mfa_verify_success", "mfa_verify_failed", "backup_codes_generated", "backup_code_used"),
        *("passkey_mfa_enabled", "passkey_mfa_disabled", "passkey_mfa_force_disabled_by_admin", "passkey_used"),
        *("passkey_added", "passkey_removed", "passkey_refused"),
        *("recovery_issued", "recovery_failed", "recovery_ended_by_sign_in", "recovered"),
    }
    assert {"mfa_setup_failed", "mfa_verify_failed", "passkey_refused", "recovery_failed"} == FAILURES


def test_backup_codes_have_40_bits_of_unambiguous_characters() -> None:
    assert len(set(CODE_ALPHABET)) == len(CODE_ALPHABET) == 32
    assert not set("I1O0") & set(CODE_ALPHABET)
    assert len(CODE_ALPHABET) ** 8 == 2**40
    assert BACKUP_CODES == 10


@table(("code", "kinds"), [("012345", [totp]), ("ABCD-2345", [backup_codes]), ("12345", []), ("abcd-2345", []), ("\u0661" * 6, [])])
def test_the_format_of_a_code_decides_its_kind(code: str, kinds: list[CodeKind]) -> None:
    assert [kind for kind in KINDS if kind.accepts(code)] == kinds


def test_a_setup_can_be_confirmed_for_15_minutes() -> None:
    assert timedelta(minutes=15) == SETUP_TTL
    assert PENDING.is_pending(NOW)
    assert PENDING.is_pending(NOW + SETUP_TTL - timedelta(microseconds=1))
    assert not PENDING.is_pending(NOW + SETUP_TTL)


def test_reprs_hide_secrets() -> None:
    text = repr([PENDING, MfaSetup("SECRET", "otpauth://SECRET"), VerifiedBackupCode(b"SECRET")])
    assert "SECRET" not in text


def test_events_name_the_user_and_no_secret() -> None:
    user = new_id()
    totp = FactorKind.TOTP
    events = [*mfa_enabled(user, totp), *mfa_disabled(user, totp), *mfa_disabled(user, totp, forced=True)]
    assert [event.kind.name for event in events[:4]] == [
        *("user.mfa.enabled", "security.mfa.enabled", "user.mfa.disabled", "security.mfa.disabled"),
    ]
    assert [event.kind.audited for event in events[:4]] == [False, True, False, True]
    assert {(event.target_id, event.of_person, event.org_id) for event in events} == {(str(user), user, None)}
    assert [event.details for event in events] == [
        *[{"factor": "totp"}] * 2,
        *[{"forced": forced, "factor": "totp"} for forced in (False, False, True, True)],
    ]
