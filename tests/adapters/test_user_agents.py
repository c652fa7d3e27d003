"""Parsing User-Agent headers (security L-3, decision 79)."""

from dataclasses import replace

import pytest

from adapters.user_agents import UserAgents
from core.accounts.model.devices import DeviceType, ParsedUserAgent
from tests.support.builders import user_agents
from tests.tables import table

BROWSER, MOBILE = DeviceType.BROWSER, DeviceType.MOBILE
NOTHING = ParsedUserAgent("Unknown browser", None, "unknown system", None, BROWSER)
WEBKIT, GECKO = "AppleWebKit/537.36 (KHTML, like Gecko)", "Gecko/20100101"


@pytest.fixture
def agents() -> UserAgents:
    return user_agents()


@table(
    ("agent", "parsed"),
    [
        (
            f"Mozilla/5.0 (X11; Linux x86_64) {WEBKIT} Chrome/120.0.0.0 Safari/537.36",
            ParsedUserAgent("Chrome", "120.0.0", "Linux", None, BROWSER),
        ),
        (
            f"Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:121.0) {GECKO} Firefox/121.0",
            ParsedUserAgent("Firefox", "121.0", "Windows", "10", BROWSER),
        ),
        (
            f"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) {WEBKIT} Version/17.1 Safari/605.1.15",
            ParsedUserAgent("Safari", "17.1", "Mac OS X", "10.15.7", BROWSER),
        ),
        (
            f"Mozilla/5.0 (iPhone; CPU iPhone OS 17_1 like Mac OS X) {WEBKIT} Version/17.1 Mobile/15E148 Safari/604.1",
            ParsedUserAgent("Mobile Safari", "17.1", "iOS", "17.1", MOBILE),
        ),
        (
            f"Mozilla/5.0 (Linux; Android 14; Pixel 8) {WEBKIT} Chrome/120.0.0.0 Mobile Safari/537.36",
            ParsedUserAgent("Chrome Mobile", "120.0.0", "Android", "14", MOBILE),
        ),
        (
            f"Mozilla/5.0 (Android 14; Tablet; rv:121.0) {GECKO} Firefox/121.0",
            ParsedUserAgent("Firefox Mobile", "121.0", "Android", "14", MOBILE),
        ),
        ("curl/8.5.0", ParsedUserAgent("curl", "8.5.0", "unknown system", None, BROWSER)),
        ("Nobody knows this one", NOTHING),
        ("", NOTHING),
        (None, NOTHING),
        ("Mozilla/5.0 (X11; Linux x86_64)", ParsedUserAgent("Unknown browser", None, "Linux", None, BROWSER)),
    ],
)
def test_a_header_names_browser_and_system(agents: UserAgents, agent: str | None, parsed: ParsedUserAgent) -> None:
    assert agents.parse(agent) == parsed


def test_names_that_are_copied_from_the_header_are_shortened(agents: UserAgents) -> None:
    parsed = agents.parse("bot " * 100)
    assert 0 < len(parsed.browser) <= 40
    assert parsed.browser == parsed.browser.strip()
    versions = agents.parse("curl/" + "9" * 200 + "." + "9" * 200).browser_version
    assert versions is None or len(versions) <= 40


def test_only_512_characters_of_a_header_are_searched(agents: UserAgents) -> None:
    filler = "x" * 512
    assert agents.parse(f"{filler} Firefox/121.0") == agents.parse(filler)
    assert agents.parse(f"{filler[:-14]} Firefox/121.0").browser == "Firefox"


@table(
    ("start", "piece", "parsed"),
    [
        *(("", piece, NOTHING) for piece in ("a", " ", ";", "-", "\n", "1.", "Safari ", "Version/1 ", "A/1;")),
        *((start, " /1.1", NOTHING) for start in ("Mozilla/5.0", "Opera/9", "Mozilla/5.0 (compatible;")),
        ("", "Android ", replace(NOTHING, os="Android", device_type=MOBILE)),
        ("Mozilla/5.0 (Linux; Android 1", " /1.1", ParsedUserAgent("Android", "1", "Android", "1", MOBILE)),
        ("", "(iPhone; ", ParsedUserAgent("Mobile Safari UI/WKWebView", None, "iOS", None, MOBILE)),
    ],
)
def test_the_start_of_an_overlong_header_is_parsed(agents: UserAgents, start: str, piece: str, parsed: ParsedUserAgent) -> None:
    assert agents.parse(start + piece * 20_000) == parsed
