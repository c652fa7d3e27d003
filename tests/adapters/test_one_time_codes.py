"""One-time codes, compared with RFC 6238 and with other implementations."""

import base64
import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, unquote, urlsplit

import pyotp
import pytest

from adapters.crypto import TotpCodes
from core.kernel.values import Email
from tests.tables import table

if TYPE_CHECKING:
    from ports.crypto import OneTimeCodes

CODES: "OneTimeCodes" = TotpCodes()
STEP = timedelta(seconds=30)
NOW = datetime(2026, 3, 14, 15, 9, 26, 535897, tzinfo=UTC)
# The key in RFC 6238 appendix B and its codes for SHA-1. We use their last six digits.
RFC_SECRET = base64.b32encode(b"12345678901234567890").decode()
RFC_CODES = [(59, "287082"), (1111111109, "081804"), (1111111111, "050471"), (1234567890, "005924"), (2000000000, "279037")]


def code_at(secret: str, time: datetime) -> str:
    return pyotp.TOTP(secret).at(time)


@table(("seconds", "code"), RFC_CODES)
def test_the_codes_match_the_test_vectors_of_the_rfc(seconds: int, code: str) -> None:
    assert CODES.matching_step(RFC_SECRET, code, datetime.fromtimestamp(seconds, UTC)) == seconds // 30


def test_each_secret_is_new_and_has_160_bits() -> None:
    secrets = {CODES.new_secret() for _ in range(100)}
    assert len(secrets) == 100
    assert {len(base64.b32decode(secret)) for secret in secrets} == {20}


def test_only_the_current_step_and_its_neighbors_are_accepted() -> None:
    secret, current = CODES.new_secret(), int(NOW.timestamp()) // 30
    steps = [CODES.matching_step(secret, code_at(secret, NOW + number * STEP), NOW) for number in range(-3, 4)]
    assert steps == [None, None, current - 1, current, current + 1, None, None]


def test_a_step_begins_and_ends_on_the_second() -> None:
    secret = CODES.new_secret()
    begin = datetime.fromtimestamp(int(NOW.timestamp()) // 30 * 30, UTC)
    code, step = code_at(secret, begin), int(begin.timestamp()) // 30
    almost = timedelta(microseconds=1)
    moments = [begin - STEP - almost, begin - STEP, begin + 2 * STEP - almost, begin + 2 * STEP]
    assert [CODES.matching_step(secret, code, moment) for moment in moments] == [None, step, step, None]


def test_a_malformed_code_matches_no_step() -> None:
    secret = CODES.new_secret()
    code = code_at(secret, NOW)
    digits = str.maketrans("0123456789", "٠١٢٣٤٥٦٧٨٩")
    for other in ("", code[:5], f"{code}0", f" {code}", code.translate(digits), "x" * 2000):
        assert CODES.matching_step(secret, other, NOW) is None


def test_every_step_is_compared_for_every_code(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[bytes] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append(one)
        return one == other

    monkeypatch.setattr("adapters.crypto.one_time_codes.hmac.compare_digest", compare)
    secret = CODES.new_secret()
    for number in (-1, 0, 1, 5):
        CODES.matching_step(secret, code_at(secret, NOW + number * STEP), NOW)
    assert len(compared) == 4 * 3
    assert len(set(compared)) == 3


@table("email", ["ada@example.com", "ada+o'neil&co@example.com", "a/b?c#d=e%f@example.com"])
def test_the_uri_contains_issuer_email_and_secret(email: str) -> None:
    secret = CODES.new_secret()
    parts = urlsplit(CODES.uri(secret, Email(email), "Gate & house"))
    assert (parts.scheme, parts.netloc, parts.fragment) == ("otpauth", "totp", "")
    assert unquote(parts.path) == f"/Gate & house:{email}"
    assert parts.path.count("/") == 1
    assert parse_qs(parts.query, strict_parsing=True) == {"secret": [secret], "issuer": ["Gate & house"]}
    assert "+" not in parts.query  # some apps would show a plus sign for a space


def test_another_library_can_read_the_uri() -> None:
    secret = CODES.new_secret()
    read = pyotp.parse_uri(CODES.uri(secret, Email("ada@example.com"), "Gatehouse"))
    assert isinstance(read, pyotp.TOTP)
    assert (read.secret, read.name, read.issuer, read.digits, read.interval) == (secret, "ada@example.com", "Gatehouse", 6, 30)
    assert CODES.matching_step(secret, read.at(NOW), NOW) is not None


@pytest.mark.skipif(shutil.which("oathtool") is None, reason="oathtool is not installed")
def test_oathtool_generates_the_same_codes() -> None:
    secret = parse_qs(urlsplit(CODES.uri(CODES.new_secret(), Email("ada@example.com"), "Gatehouse")).query)["secret"][0]
    command = ["oathtool", "--totp", "--base32", "--window=2", f"--now={NOW:%Y-%m-%d %H:%M:%S} UTC", secret]
    codes = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.split()
    current = int(NOW.timestamp()) // 30
    assert [CODES.matching_step(secret, code, NOW) for code in codes] == [current, current + 1, None]
