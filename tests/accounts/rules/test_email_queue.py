"""Rules for the email queue."""

from datetime import UTC, datetime, timedelta

from core.accounts.model.email_queue import MAX_ATTEMPTS, EmailKind, compute_backoff, new_email
from core.kernel.values import Email
from tests.tables import table

NOW = datetime(2026, 3, 14, tzinfo=UTC)


@table(("attempts", "seconds"), [(1, 5), (2, 10), (3, 20), (4, 40), (9, 1280), (10, 2560), (11, 3600), (12, 3600), (MAX_ATTEMPTS, 3600)])
def test_waits_double_up_to_an_hour(attempts: int, seconds: int) -> None:
    assert compute_backoff(attempts, 0.5) == timedelta(seconds=seconds)
    assert compute_backoff(attempts, 0.0) == timedelta(seconds=seconds * 0.75)
    assert compute_backoff(attempts, 1.0) == timedelta(seconds=seconds * 1.25)


def test_all_attempts_together_take_about_14_hours() -> None:
    total = sum((compute_backoff(attempts, 0.5) for attempts in range(1, MAX_ATTEMPTS)), timedelta())
    assert timedelta(hours=13) < total < timedelta(hours=15)


def test_a_very_large_count_does_not_overflow() -> None:
    assert compute_backoff(1000, 0.5) == timedelta(hours=1)


def test_a_new_email_is_due_immediately() -> None:
    mail = new_email(EmailKind.RESET_PASSWORD, Email("ada@example.com"), NOW)
    assert (mail.created_at, mail.due_at, mail.claims, mail.attempts, mail.token) == (NOW, NOW, 0, 0, None)
    assert (mail.kind, mail.address) == (EmailKind.RESET_PASSWORD, "ada@example.com")
    assert new_email(EmailKind.RESET_PASSWORD, mail.address, NOW).id != mail.id


def test_the_repr_of_an_email_hides_the_token() -> None:
    from dataclasses import replace

    mail = replace(new_email(EmailKind.RESET_PASSWORD, Email("ada@example.com"), NOW), token="secret-token")
    assert "secret-token" not in repr(mail)
