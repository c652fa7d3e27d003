"""The hours, days and weeks for figures."""

from datetime import UTC, datetime, timedelta, timezone

from core.applications.model.figures import (
    DAYS_KEPT,
    HOURS_KEPT,
    FigureRange,
    FigureSpan,
    TrafficCount,
    period_of,
    start_of_week,
    summarize_traffic,
    weeks_of,
)
from tests.tables import table

NOW = datetime(2026, 3, 1, 0, 30, tzinfo=timezone(timedelta(hours=2)))  # 28 February, 22:30 UTC


@table(
    ("range_", "first", "count"),
    [
        (FigureRange.DAY, datetime(2026, 2, 27, 23, tzinfo=UTC), 24),
        (FigureRange.WEEK, datetime(2026, 2, 22, tzinfo=UTC), 7),
        (FigureRange.MONTH, datetime(2026, 1, 30, tzinfo=UTC), 30),
        (FigureRange.QUARTER, datetime(2025, 12, 1, tzinfo=UTC), 90),
    ],
)
def test_a_range_ends_with_the_present_hour_or_day_in_utc(range_: FigureRange, first: datetime, count: int) -> None:
    period = period_of(range_, NOW)
    assert (period.first, period.count, len(period.starts)) == (first, count, count)
    assert period.starts[-1] <= NOW < period.starts[-1] + period.span.length


def test_the_weeks_begin_on_monday_and_are_at_least_four() -> None:
    for range_, count in ((FigureRange.DAY, 4), (FigureRange.WEEK, 4), (FigureRange.MONTH, 5), (FigureRange.QUARTER, 13)):
        weeks = weeks_of(period_of(range_, NOW), NOW)
        assert len(weeks) == count
        assert {week.weekday() for week in weeks} == {0}
        assert weeks[0] <= period_of(range_, NOW).first
        assert weeks[-1] == start_of_week(NOW)


def test_figures_are_kept_for_the_longest_range_and_its_weeks() -> None:
    """This holds on every weekday."""
    for day in range(7):
        now = NOW + timedelta(days=day)
        assert now - HOURS_KEPT < period_of(FigureRange.DAY, now).first
        assert now - DAYS_KEPT < weeks_of(period_of(FigureRange.QUARTER, now), now)[0]


def test_traffic_has_the_outcomes_in_their_order_and_the_times_of_all() -> None:
    period = period_of(FigureRange.WEEK, NOW)
    first, second = period.starts[:2]
    counts = [
        TrafficCount(first, "failed", 1, 900, 900),
        TrafficCount(first, "delivered", 3, 300, 150),
        TrafficCount(second, "odd", 2, 0, 0),
    ]
    loaded = summarize_traffic(period, counts, ("delivered", "failed"))
    assert list(loaded.outcomes) == ["delivered", "failed", "odd"]
    assert loaded.outcomes["delivered"] == [3, 0, 0, 0, 0, 0, 0]
    assert loaded.average == [300, 0, None, None, None, None, None]
    assert loaded.slowest == [900, 0, None, None, None, None, None]
    assert period.span is FigureSpan.DAY
