"""What a device promises by itself: until when the second factor is remembered on it (decisions, point 81; security.md S-5)."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from core.accounts.devices_rules import Device, PresentedDevice
from core.kernel.values import digest
from tests.support.builders import make_device

NOW = datetime(2026, 3, 14, 15, 9, 26, 535897, tzinfo=UTC)
DAY, MICROSECOND = timedelta(days=1), timedelta(microseconds=1)

DEVICE = make_device(uuid4(), NOW, mfa_at=NOW, trust_hash=digest("token"), trust_expires_at=NOW + 90 * DAY)


@pytest.mark.parametrize(
    ("days", "after", "remembered"),
    [
        (30, 0 * DAY, True),
        (30, 30 * DAY - MICROSECOND, True),
        (30, 30 * DAY, False),
        (1, DAY - MICROSECOND, True),
        (1, DAY, False),
        (90, 90 * DAY - MICROSECOND, True),
        (90, 90 * DAY, False),
    ],
)
def test_the_second_factor_is_remembered_for_the_period_after_it_was_shown(days: int, after: timedelta, remembered: bool) -> None:
    assert DEVICE.remembers_second_factor(days, NOW + after) is remembered


def test_the_shorter_of_the_token_and_the_period_wins() -> None:
    shown_again = replace(DEVICE, mfa_at=NOW + 80 * DAY)
    assert shown_again.remembers_second_factor(30, NOW + 90 * DAY - MICROSECOND)
    assert not shown_again.remembers_second_factor(30, NOW + 90 * DAY)


@pytest.mark.parametrize(
    "device",
    [
        replace(DEVICE, mfa_at=None),
        replace(DEVICE, trust_hash=None, trust_expires_at=None),
        replace(DEVICE, revoked_at=NOW),
    ],
    ids=["without a second factor", "without a token", "revoked"],
)
def test_a_device_without_what_trust_takes_remembers_nothing(device: Device) -> None:
    assert not device.remembers_second_factor(90, NOW)


def test_only_the_tokens_own_hash_is_that_of_the_device() -> None:
    assert DEVICE.has_trust_token(digest("token"))
    assert not DEVICE.has_trust_token(digest("other"))
    assert not DEVICE.has_trust_token(None)
    assert not replace(DEVICE, trust_hash=None).has_trust_token(None)


def test_what_a_client_keeps_is_not_shown() -> None:
    assert "secret" not in repr(PresentedDevice(device_id="secret-1", token="secret-2", name="Phone"))
