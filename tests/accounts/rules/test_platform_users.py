"""How the share of people with a second factor is rounded (decisions, point 243)."""

import pytest

from core.accounts.platform_users_rules import MfaMetrics


@pytest.mark.parametrize(
    ("total", "enabled", "rate"),
    [(0, 0, 0.0), (1, 0, 0.0), (1, 1, 100.0), (3, 1, 33.33), (3, 2, 66.67), (1_000_000, 1, 0.0), (1_000_000, 51, 0.01)],
)
def test_the_share_is_in_percent_with_two_decimals_and_0_of_nobody(total: int, enabled: int, rate: float) -> None:
    assert MfaMetrics(total, enabled, backup_codes_used=0, failures=0).adoption_rate == rate
