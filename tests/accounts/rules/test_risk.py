"""Login risk (decision 83)."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from core.accounts.model.devices import MAX_COUNTED_FAILURES, LoginHistory, LoginRisk, assess
from tests.tables import table

USUAL = LoginHistory(failures=0, logins=10, at_this_hour=True, known_location=True)
ELSEWHERE, LATE = replace(USUAL, known_location=False), replace(USUAL, at_this_hour=False)

HISTORIES = st.builds(
    LoginHistory,
    failures=st.integers(0, MAX_COUNTED_FAILURES),
    logins=st.integers(0, 10),
    at_this_hour=st.booleans(),
    known_location=st.booleans(),
)


@table(
    ("history", "new_device", "known_location", "risk"),
    [
        (USUAL, False, True, LoginRisk(0, ())),
        (USUAL, True, True, LoginRisk(30, ("new_device",))),
        (ELSEWHERE, False, True, LoginRisk(20, ("unknown_location",))),
        (ELSEWHERE, False, False, LoginRisk(0, ())),  # the location is unknown
        (LATE, False, True, LoginRisk(10, ("unusual_time",))),
        (replace(LATE, logins=9), False, True, LoginRisk(0, ())),  # too few logins for a habit
        (replace(USUAL, failures=1), False, True, LoginRisk(20, ("failed_attempts",))),
        (replace(USUAL, failures=3), False, True, LoginRisk(60, ("failed_attempts",))),
        (replace(USUAL, failures=5), False, True, LoginRisk(100, ("failed_attempts",))),
        (replace(ELSEWHERE, at_this_hour=False), True, True, LoginRisk(60, ("new_device", "unknown_location", "unusual_time"))),
        (
            LoginHistory(failures=5, logins=10, at_this_hour=False, known_location=False),
            True,
            True,
            LoginRisk(100, ("new_device", "unknown_location", "unusual_time", "failed_attempts")),
        ),
    ],
)
def test_each_factor_adds_its_points(history: LoginHistory, new_device: bool, known_location: bool, risk: LoginRisk) -> None:
    assert assess(history, is_new_device=new_device, location_is_known=known_location, is_anonymized=False) == risk


def test_a_vpn_or_proxy_adds_ten_points() -> None:
    assert assess(USUAL, is_new_device=False, location_is_known=True, is_anonymized=True) == LoginRisk(10, ("vpn_or_proxy",))
    risk = assess(replace(LATE, failures=1), is_new_device=True, location_is_known=True, is_anonymized=True)
    assert risk == LoginRisk(70, ("new_device", "unusual_time", "vpn_or_proxy", "failed_attempts"))


@table(("score", "high"), [(0, False), (70, False), (71, True), (80, True), (100, True)])
def test_only_a_risk_above_70_is_high(score: int, high: bool) -> None:
    assert LoginRisk(score, ()).is_high is high


@given(HISTORIES, st.booleans(), st.booleans(), st.booleans())
def test_the_score_is_0_to_100_and_has_factors_unless_it_is_0(
    history: LoginHistory, new_device: bool, known_location: bool, anonymized: bool
) -> None:
    risk = assess(history, is_new_device=new_device, location_is_known=known_location, is_anonymized=anonymized)
    assert 0 <= risk.score <= 100
    assert bool(risk.factors) == (risk.score > 0)
    assert len(set(risk.factors)) == len(risk.factors)


@given(HISTORIES, st.booleans(), st.booleans(), st.booleans())
def test_a_further_factor_never_lowers_the_score(history: LoginHistory, new_device: bool, known_location: bool, anonymized: bool) -> None:
    lowest = assess(history, is_new_device=new_device, location_is_known=known_location, is_anonymized=anonymized)
    for worse in (
        assess(history, is_new_device=new_device, location_is_known=known_location, is_anonymized=True),
        assess(history, is_new_device=True, location_is_known=known_location, is_anonymized=anonymized),
        assess(
            replace(history, known_location=False), is_new_device=new_device, location_is_known=known_location, is_anonymized=anonymized
        ),
        assess(replace(history, at_this_hour=False), is_new_device=new_device, location_is_known=known_location, is_anonymized=anonymized),
        assess(
            replace(history, failures=min(history.failures + 1, MAX_COUNTED_FAILURES)),
            is_new_device=new_device,
            location_is_known=known_location,
            is_anonymized=anonymized,
        ),
    ):
        assert worse.score >= lowest.score
        assert set(worse.factors) >= set(lowest.factors)
