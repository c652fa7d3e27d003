"""Rules for trusting devices (security S-5)."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from core.accounts.model.devices import Device, PresentedDevice
from core.kernel.values import digest
from tests.support.builders import make_device
from tests.tables import table

NOW = datetime(2026, 3, 14, 15, 9, 26, 535897, tzinfo=UTC)
DAY, MICROSECOND = timedelta(days=1), timedelta(microseconds=1)

DEVICE = make_device(uuid4(), NOW, mfa_at=NOW, trust_hash=digest("token"), trust_expires_at=NOW + 90 * DAY)


@table(
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
def test_the_second_factor_is_remembered_for_the_trust_period(days: int, after: timedelta, remembered: bool) -> None:
    assert DEVICE.remembers_second_factor(days, NOW + after) is remembered


def test_the_earlier_end_of_token_and_period_counts() -> None:
    verified_again = replace(DEVICE, mfa_at=NOW + 80 * DAY)
    assert verified_again.remembers_second_factor(30, NOW + 90 * DAY - MICROSECOND)
    assert not verified_again.remembers_second_factor(30, NOW + 90 * DAY)


@table(
    "device",
    [
        replace(DEVICE, mfa_at=None),
        replace(DEVICE, trust_hash=None, trust_expires_at=None),
        replace(DEVICE, revoked_at=NOW),
    ],
    ids=["without a second factor", "without a token", "revoked"],
)
def test_an_untrusted_device_remembers_nothing(device: Device) -> None:
    assert not device.remembers_second_factor(90, NOW)


def test_only_the_hash_of_the_token_matches() -> None:
    assert DEVICE.has_trust_token(digest("token"))
    assert not DEVICE.has_trust_token(digest("other"))
    assert not DEVICE.has_trust_token(None)
    assert not replace(DEVICE, trust_hash=None).has_trust_token(None)


def test_the_repr_of_a_presented_device_hides_secrets() -> None:
    assert "secret" not in repr(PresentedDevice(device_id="secret-1", token="secret-2", name="Phone"))
