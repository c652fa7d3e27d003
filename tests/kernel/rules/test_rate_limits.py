"""The documented rate limits, and the operator's factor (docs/reference/limits.md)."""

import pytest

from core.kernel.rate_limits import (
    AUTH,
    FORGOT_PASSWORD,
    IMPERSONATE,
    LOGIN,
    MFA_CONFIRMATION,
    MFA_SETUP,
    MFA_VERIFICATION,
    REGISTER,
    RESEND_VERIFICATION,
    Bucket,
    per_minute,
)
from tests.tables import table


def test_the_rate_limits_are_the_documented_ones() -> None:
    assert Bucket("auth", 1.0, 20) == AUTH
    assert Bucket("register", 6.0, 10) == REGISTER
    assert Bucket("login", 6.0, 10) == LOGIN
    assert Bucket("forgot-password", 12.0, 5) == FORGOT_PASSWORD
    assert Bucket("resend-verification", 20.0, 3) == RESEND_VERIFICATION
    assert Bucket("impersonate", 6.0, 10) == IMPERSONATE
    assert Bucket("mfa-setup", 300.0, 5) == MFA_SETUP
    assert Bucket("mfa-confirmation", 60.0, 5) == MFA_CONFIRMATION
    assert Bucket("mfa-verification", 1.0, 3) == MFA_VERIFICATION


def test_buckets_have_different_names() -> None:
    buckets = (AUTH, REGISTER, LOGIN, FORGOT_PASSWORD, RESEND_VERIFICATION, IMPERSONATE, MFA_SETUP, MFA_CONFIRMATION, MFA_VERIFICATION)
    names = [bucket.name for bucket in buckets]
    assert len(set(names)) == len(names)


@table(
    ("factor", "period", "burst"),
    [(1.0, 6.0, 10), (2.0, 3.0, 20), (10.0, 0.6, 100), (0.5, 12.0, 5), (0.01, 600.0, 1), (1000.0, 0.006, 10000)],
)
def test_a_factor_scales_rate_and_burst(factor: float, period: float, burst: int) -> None:
    scaled = per_minute("x", 10).scaled(factor)
    assert (scaled.name, scaled.burst) == ("x", burst)
    assert scaled.period == pytest.approx(period)
