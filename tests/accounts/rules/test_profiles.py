"""Rules for profile texts (decision 247)."""

import zoneinfo

import pytest

from core.accounts.model.profiles import (
    MAX_PICTURE_LENGTH,
    BirthdateInvalid,
    LocaleInvalid,
    NameInvalid,
    NamePartInvalid,
    PictureInvalid,
    Profile,
    ProfileChanges,
    ProfileUrlInvalid,
    TimeZoneInvalid,
    time_zones,
)
from core.kernel.errors import Invalid
from tests.tables import table

PICTURE = "https://images.example.com/ada.png"
VALID = {
    "name": ("Ada Lovelace", "岡本", "O'Brien-Smith, Jr.", "x" * 100, "🦊"),
    "picture": (PICTURE, "https://images.example.com:8443/a?b=c%20d", f"{PICTURE}?{'x' * (MAX_PICTURE_LENGTH - len(PICTURE) - 1)}"),
    "locale": ("en", "en-US", "de-CH-1996", "zh-Hant-TW", "sr-Latn-RS", "es-419", "sl-rozaj-biske", "en-a-bbb-x-a-ccc", "de-u-co-phonebk"),
    "zoneinfo": ("Europe/Berlin", "America/Argentina/Buenos_Aires", "Etc/GMT+5", "UTC"),
    **dict.fromkeys(("given_name", "family_name", "middle_name", "nickname", "gender"), ("Ada", "de la Cruz", "岡本", "x" * 100)),
    "preferred_username": ("ada", "ada@example.com", "a/b c", "7"),
    **dict.fromkeys(("profile", "website"), (PICTURE, "https://example.com/~ada?x=1")),
    "birthdate": ("1815-12-10", "2000-02-29", "0000-02-29", "0000-01-01", "1990", "0001", "9999-12-31"),
}
REFUSED: dict[str, tuple[type[Invalid], tuple[str, ...]]] = {
    "name": (NameInvalid, ("", " ", "\u200b", "x" * 101, "a\nb", "a\u202eb")),
    "picture": (
        PictureInvalid,
        (
            *(
                "",
                "http://images.example.com/a.png",
                "http://localhost/a.png",
                "data:image/png;base64,AAAA",
                "javascript:alert(1)",
                "//x/a",
            ),
            *("ada.png", "https://", "https://user@images.example.com/", f"{PICTURE}#top", "https://images.example.com/é.png"),
            *(f"{PICTURE}?{'x' * MAX_PICTURE_LENGTH}", "https:images.example.com/a.png", "https://images.example.com/a b"),
        ),
    ),
    "locale": (
        LocaleInvalid,
        ("", "en_US", "e", "en-", "-en", "en-US-", "en--US", "English!", "en-a", "x" * 9, "en-x-" + "-".join("a" * 40)),
    ),
    "zoneinfo": (
        TimeZoneInvalid,
        ("", "Europe", "europe/berlin", "W. Europe Standard Time", "../etc/passwd", "localtime", "posix/UTC", "+01:00"),
    ),
    **dict.fromkeys(
        ("given_name", "family_name", "middle_name", "nickname", "preferred_username", "gender"),
        (NamePartInvalid, ("", " ", "\u200b", "x" * 101, "a\nb", "a\u202eb")),
    ),
    **dict.fromkeys(
        ("profile", "website"), (ProfileUrlInvalid, ("", "http://ada.example.com", "ada", "javascript:alert(1)", "https://x/#top"))
    ),
    "birthdate": (
        BirthdateInvalid,
        (
            *("", "0000", "190", "19900", "1990-1-1", "1990-13-01", "1990-00-10", "1990-01-00", "1990-02-30", "1991-02-29"),
            *("1990-12", "12-31", "31.12.1990", "1990-12-31T00:00", "-001-01-01", "\uff11990"),
        ),
    ),
}


@table("field", VALID)
def test_valid_texts_are_kept_without_spaces_around_them(field: str) -> None:
    for text in VALID[field]:
        assert ProfileChanges.parse(**{field: f" {text} "}).apply_to(Profile()) == Profile(**{field: text})


@table("field", REFUSED)
def test_other_texts_are_refused(field: str) -> None:
    error, texts = REFUSED[field]
    for text in texts:
        with pytest.raises(error):
            ProfileChanges.parse(**{field: text})


def test_a_directory_changes_the_fields_that_differ_and_are_valid() -> None:
    old, new = Profile("Ada", PICTURE, "en", None), Profile("Ada", None, "en_US", "Europe/London")
    mine = Profile("Countess", "https://other.example/a.png", "fr", None)
    assert ProfileChanges.valid_parts(old, new).apply_to(mine) == Profile("Countess", None, "fr", "Europe/London")


def test_time_zones_are_known_on_systems_without_a_database_of_them() -> None:
    found = zoneinfo.TZPATH
    time_zones.cache_clear()
    try:
        zoneinfo.reset_tzpath(to=[])
        assert {"Europe/Berlin", "UTC"} <= time_zones()
    finally:
        zoneinfo.reset_tzpath(to=found)
        time_zones.cache_clear()
