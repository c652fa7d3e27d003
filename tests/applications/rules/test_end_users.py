"""Derived values for end users."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

from core.applications.model.users import EndUser, EndUserDetails, UsedService
from core.kernel.values import Email
from core.tenancy.events import sessions_revoked
from core.tenancy.model.members import LiveSessions

NOW = datetime(2026, 3, 14, tzinfo=UTC)
PERSON = EndUser(UUID(int=1), Email("ada@example.com"), email_verified=True, mfa_enabled=False, created_at=NOW, updated_at=NOW)


def seen(*logins: datetime | None) -> EndUserDetails:
    services = [UsedService(UUID(int=number), f"s-{number}", "S", at, at) for number, at in enumerate(logins)]
    return EndUserDetails(PERSON, services, [], LiveSessions(0, None), None, may_remove_second_factor=False)


def test_the_last_login_is_the_latest_to_any_service() -> None:
    assert seen(NOW, None, NOW + timedelta(seconds=1), NOW).last_login_at == NOW + timedelta(seconds=1)


def test_a_user_who_never_signed_in_has_no_last_login() -> None:
    assert seen(None, None).last_login_at is None
    assert seen().last_login_at is None


def test_the_event_about_revoked_sessions_has_their_number() -> None:
    event = sessions_revoked(UUID(int=7), UUID(int=1), 3)
    assert (event.kind.name, event.kind.audited, event.kind.target) == ("user.sessions_revoked", True, "user")
    assert (event.org_id, event.target_id, event.details) == (UUID(int=7), str(UUID(int=1)), {"sessions_revoked": 3})
