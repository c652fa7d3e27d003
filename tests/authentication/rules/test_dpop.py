"""Claims in DPoP proofs, nonces, and the tables with used proofs (RFC 9449 sections 4.3, 8 and 11.1)."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from core.authentication.model.dpop import (
    PROOF_TABLES,
    NonceKey,
    ProofInvalid,
    ProofUse,
    SentProof,
    SignedProof,
    check_claims,
    is_nonce_of,
    is_outdated,
    make_nonce,
    nonce_period,
    normalize_url,
    parse_nonce,
    tables_to_empty,
)
from core.kernel.values import base64url, digest

NOW = datetime(2027, 3, 4, 5, 6, 0, tzinfo=UTC)
URL = "https://sso.example.com/api/user"
KEY = NonceKey(nonce_period(NOW), b"k" * 32)
CLAIMS = {"jti": "one", "htm": "GET", "htu": URL, "iat": int(NOW.timestamp()), "ath": base64url(digest("token"))}


def check(token: str | None = "token", **changes: Any) -> None:
    claims = {name: value for name, value in (CLAIMS | changes).items() if value is not ...}
    check_claims(SignedProof("thumb", claims), SentProof("text", "GET", URL), token, NOW)


def test_each_claim_is_required_and_compared() -> None:
    check()
    check(None, ath=...)
    check(jti="x" * 255, iat=NOW.timestamp() - 3600.5)
    wrong: list[dict[str, Any]] = [
        *({"jti": value} for value in (..., "", "x" * 256, 7, None, "a\nb", "a\ud800")),
        *({"htm": value} for value in (..., "POST", "get", "HEAD", None, ["GET"])),
        *({"htu": value} for value in (..., URL + "s", "http://sso.example.com/api/user", "/api/user", "", None, [URL])),
        *({"htu": value} for value in ("https://sso.example.com:444/api/user", "https://u@sso.example.com/api/user", "https://[::1")),
        *({"iat": value} for value in (..., "1", None, True, float("nan"), float("inf"), 0, -1, 1e300)),
        *({"ath": value} for value in (..., base64url(digest("other")), base64url(digest("token")) + "=", None, 1)),
    ]
    for changes in wrong:
        with pytest.raises(ProofInvalid) as caught:
            check(**changes)
        assert next(iter(changes)) in caught.value.message


def test_urls_are_compared_in_normal_form() -> None:
    """RFC 3986 sections 6.2.2 and 6.2.3."""
    for other in (
        "HTTPS://SSO.example.COM/api/user",
        "https://sso.example.com:443/api/user",
        "https://sso.example.com/api/user?page=2#top",
        "https://sso.example.com/api/./x/../user",
        "https://sso.example.com/api/us%65r",
        "https://sso.example.com/api/user/",
    ):
        check(htu=other)
    assert normalize_url("https://sso.example.com") == normalize_url("https://sso.example.com/")
    assert normalize_url("https://a.example/x%2fy") == normalize_url("https://a.example/x%2Fy") != normalize_url("https://a.example/x/y")
    assert normalize_url("http://[::1]:80/") == "http://[::1]"
    for unusable in ("ftp://a.example/", "https:///x", "https://a.example:x/", "urn:a", "https://a.example/\n"):
        assert normalize_url(unusable) is None


def test_a_clock_may_be_a_day_off_because_the_nonce_proves_the_age() -> None:
    for seconds in (86_400, -86_400):
        check(iat=NOW.timestamp() + seconds)
        with pytest.raises(ProofInvalid):
            check(iat=NOW.timestamp() + seconds + (1 if seconds > 0 else -1))


def test_a_nonce_lives_for_a_minute_from_its_step() -> None:
    nonce = make_nonce(KEY, NOW)
    assert make_nonce(KEY, NOW + timedelta(seconds=29.9)) == nonce != make_nonce(KEY, NOW + timedelta(seconds=30))
    step = parse_nonce(nonce, NOW)
    assert step is not None
    assert is_nonce_of(nonce, KEY, step)
    accepted = [seconds for seconds in range(-40, 90) if parse_nonce(nonce, NOW + timedelta(seconds=seconds)) == step]
    assert (accepted[0], accepted[-1]) == (-30, 59)  # another process's clock can be ahead
    assert [is_outdated(step, NOW + timedelta(seconds=seconds)) for seconds in (0, 29, 30, 59)] == [False, False, True, True]


def test_a_nonce_of_another_key_or_time_is_none_of_ours() -> None:
    nonce = make_nonce(KEY, NOW)
    step, mac = parse_nonce(nonce, NOW), nonce.partition(".")[2]
    assert step is not None
    assert not is_nonce_of(nonce, NonceKey(KEY.period, b"l" * 32), step)
    later = make_nonce(KEY, NOW + timedelta(seconds=30)).partition(".")[0]
    assert parse_nonce(f"{later}.{mac}", NOW) == step + 1
    assert not is_nonce_of(f"{later}.{mac}", KEY, step + 1)
    for wrong in (None, 1, "", "x", nonce + "x", nonce[:-1], f"0{nonce}.", "-1." + mac, nonce.upper(), f"{'z' * 14}.{mac}", [nonce]):
        assert parse_nonce(wrong, NOW) is None, wrong


def test_a_proof_has_one_place_and_a_table_is_emptied_only_when_none_of_its_nonces_is_accepted() -> None:
    seen = set()
    for seconds in range(0, 1200, 10):
        now = NOW + timedelta(seconds=seconds)
        emptied = set(tables_to_empty(now))
        for off in range(-120, 121, 10):  # processes with different clocks
            for age in (0, 30, 59):
                clock = now + timedelta(seconds=off)
                step = parse_nonce(make_nonce(KEY, clock - timedelta(seconds=age)), clock)
                assert step is None or ProofUse("thumb", "jti", step, KEY).table not in emptied
        assert emptied < set(range(PROOF_TABLES))
        seen |= emptied
    assert seen == set(range(PROOF_TABLES))
    one, other = ProofUse("thumb", "jti", 7, KEY), ProofUse("thumb", "jti", 8, KEY)
    assert one.id == ProofUse("thumb", "jti", 7, KEY, "next").id
    assert len({one.id, other.id, ProofUse("thumb2", "jti", 7, KEY).id, ProofUse("thumb", "jti2", 7, KEY).id}) == 4
