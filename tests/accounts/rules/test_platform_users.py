"""Rounding the adoption rate (decision 243)."""

from core.accounts.model.platform import MfaMetrics
from tests.tables import table


@table(
    ("total", "enabled", "rate"),
    [(0, 0, 0.0), (1, 0, 0.0), (1, 1, 100.0), (3, 1, 33.33), (3, 2, 66.67), (1_000_000, 1, 0.0), (1_000_000, 51, 0.01)],
)
def test_the_adoption_rate_has_two_decimals_and_is_0_without_users(total: int, enabled: int, rate: float) -> None:
    assert MfaMetrics(total, enabled, backup_codes_used=0, failures=0).adoption_rate == rate
