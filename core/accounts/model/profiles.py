"""A person's profile: their OpenID Connect claims (Core, section 5.1), without email address and phone number."""

import re
import zoneinfo
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import date
from functools import cache, partial
from types import MappingProxyType
from typing import Final, Self

from core.kernel import uris
from core.kernel.callers import Person
from core.kernel.errors import Invalid
from core.kernel.values import Email, Keep, is_printable, is_visible, provided

MAX_NAME_LENGTH: Final = 100
MAX_PICTURE_LENGTH: Final = 1024  # every URL in a profile has this limit
MAX_LOCALE_LENGTH: Final = 64

# A well-formed language tag (RFC 5646 section 2.1), without the irregular tags that the RFC keeps for old data.
_LANGUAGE_TAG: Final = re.compile(
    r"(?:[a-z]{2,3}(?:-[a-z]{3}){0,3}|[a-z]{4,8})"  # language
    r"(?:-[a-z]{4})?"  # script
    r"(?:-(?:[a-z]{2}|[0-9]{3}))?"  # region
    r"(?:-(?:[a-z0-9]{5,8}|[0-9][a-z0-9]{3}))*"  # variants
    r"(?:-[a-wyz0-9](?:-[a-z0-9]{2,8})+)*"  # extensions
    r"(?:-x(?:-[a-z0-9]{1,8})+)?",  # private use
    re.ASCII | re.IGNORECASE,
)
# A date of ISO 8601, with 0000 for an unknown year, or the year alone (OpenID Connect Core section 5.1).
_BIRTHDATE: Final = re.compile(r"([0-9]{4})(?:-([0-9]{2})-([0-9]{2}))?", re.ASCII)
_LEAP_YEAR: Final = 2000
# Files beside a system's time zones, which name no place.
_NO_TIME_ZONES: Final = frozenset({"Factory", "localtime"})


class NameInvalid(Invalid):
    """The name must have 1 to 100 characters, without line breaks and control characters. Shorten it, or leave it out."""


class PictureInvalid(Invalid):
    """The picture must be an absolute ASCII https URL of at most 1024 characters, without a user name or a fragment."""


class LocaleInvalid(Invalid):
    """The locale must be a language tag of BCP 47, such as en-US."""


class TimeZoneInvalid(Invalid):
    """The time zone must be a name of the IANA database, such as Europe/Berlin."""


class NamePartInvalid(Invalid):
    """Names, username and gender have 1 to 100 characters, no line breaks or control characters. Shorten the value, or leave it out."""


class ProfileUrlInvalid(Invalid):
    """The profile page and the website must be absolute ASCII https URLs of at most 1024 characters, without a user name or a fragment."""


class BirthdateInvalid(Invalid):
    """The birthdate must be a date such as 1990-12-31, 0000-12-31 without the year, or the year alone, such as 1990."""


@dataclass(frozen=True, slots=True)
class Profile:
    """The facts that a person states about themselves. None: not set. The fields after `zoneinfo` are the details (DETAILS)."""

    name: str | None = None
    picture: str | None = None  # an https URL
    locale: str | None = None  # a language tag, such as en-US
    zoneinfo: str | None = None  # a time zone, such as Europe/Berlin
    given_name: str | None = None
    family_name: str | None = None
    middle_name: str | None = None
    nickname: str | None = None
    preferred_username: str | None = None
    profile: str | None = None  # an https URL
    website: str | None = None  # an https URL
    gender: str | None = None
    birthdate: str | None = None  # YYYY-MM-DD, 0000-MM-DD or YYYY

    @property
    def details(self) -> dict[str, str]:
        """The details that are set, by name."""
        return {name: value for name in DETAILS if (value := getattr(self, name)) is not None}

    def without_details(self) -> Self:
        return replace(self, **dict.fromkeys(DETAILS))

    def only_names(self) -> Self:
        """Return the profile with the names alone."""
        return type(self)(name=self.name, given_name=self.given_name, family_name=self.family_name)

    def names_over(self, other: Self) -> Self:
        """Return `other` with the names that this profile has."""
        names = {"name": self.name, "given_name": self.given_name, "family_name": self.family_name}
        return replace(other, **{field: value for field, value in names.items() if value is not None})

    def changed_fields(self, new: Self) -> list[str]:
        """Return which fields differ, by name."""
        return [name for name in self.__slots__ if getattr(self, name) != getattr(new, name)]


NO_PROFILE: Final = Profile()
DETAILS: Final = (
    *("given_name", "family_name", "middle_name", "nickname", "preferred_username"),
    *("profile", "website", "gender", "birthdate"),
)


@dataclass(frozen=True, slots=True)
class OwnProfile:
    """An account's address and profile, as its user sees them."""

    email: Email | None  # None if the caller does not see it
    pending_email: Email | None  # a requested new address that is not proved yet
    profile: Profile

    def seen_by(self, caller: Person) -> Self:
        """Return the profile as the caller sees it.

        An application does not learn a pending address. It reads the details at the userinfo endpoint
        only, because the user agreed to them there. With OpenID Connect, it sees the address and the profile
        only if it has their scopes. In a session that began at an organization's connection, the organization's provider could be
        the caller, which learns only the names.
        """
        own = self if caller.restricted_to is None else type(self)(self.email, None, self.profile.only_names())
        if caller.service is None:
            return own
        profile = own.profile.without_details() if caller.sees("profile") else NO_PROFILE
        return type(self)(own.email if caller.sees("email") else None, None, profile)


@dataclass(frozen=True, slots=True)
class ProfileChanges:
    """The new values of a profile, by field. None removes a value. All other fields stay as they are."""

    values: Mapping[str, str | None]

    @classmethod
    def parse(cls, **texts: str | Keep | None) -> Self:
        """Check a request's texts, by field.

        Spaces at their ends are removed. Fields that are KEEP do not change.

        Raises: NameInvalid, PictureInvalid, LocaleInvalid, TimeZoneInvalid, NamePartInvalid,
        ProfileUrlInvalid, BirthdateInvalid.
        """
        return cls({field: _PARSERS[field](text) if isinstance(text, str) else text for field, text in provided(**texts).items()})

    @classmethod
    def valid_parts(cls, old: Profile, new: Profile) -> Self:
        """Return the changes between two profiles with unchecked texts, and leave out invalid texts."""
        changes = dict[str, str | None]()
        for field in old.changed_fields(new):
            value = getattr(new, field)
            try:
                changes |= cls.parse(**{field: value}).values
            except Invalid:
                continue
        return cls(changes)

    def apply_to(self, profile: Profile) -> Profile:
        """Return the profile after these changes."""
        return replace(profile, **self.values)


def parse_name(text: str) -> str:
    """Return the name without spaces at its ends."""
    return _parse_line(text, NameInvalid)


def _parse_line(text: str, error: type[Invalid]) -> str:
    line = text.strip()
    if not is_visible(line) or len(line) > MAX_NAME_LENGTH or not is_printable(line):
        raise error
    return line


def _parse_url(text: str, error: type[Invalid]) -> str:
    url = uris.canonicalize(text.strip())
    # `is_web_url` also allows http on the loopback interface.
    if len(url) > MAX_PICTURE_LENGTH or not url.lower().startswith("https://") or not uris.is_web_url(url):
        raise error
    return url


def _parse_locale(text: str) -> str:
    tag = text.strip()
    if len(tag) > MAX_LOCALE_LENGTH or not _LANGUAGE_TAG.fullmatch(tag):
        raise LocaleInvalid
    return tag


def _parse_time_zone(text: str) -> str:
    name = text.strip()
    if name not in time_zones():
        raise TimeZoneInvalid
    return name


def _parse_birthdate(text: str) -> str:
    birthdate = text.strip()
    match = _BIRTHDATE.fullmatch(birthdate)
    if match is None or birthdate == "0000":
        raise BirthdateInvalid
    year, month, day = match.groups(default="1")
    try:
        date(int(year) or _LEAP_YEAR, int(month), int(day))
    except ValueError:
        raise BirthdateInvalid from None
    return birthdate


_NAME_PARTS: Final = ("given_name", "family_name", "middle_name", "nickname", "preferred_username", "gender")
_PARSERS: Final[Mapping[str, Callable[[str], str]]] = MappingProxyType(
    {
        "name": parse_name,
        "picture": partial(_parse_url, error=PictureInvalid),
        "locale": _parse_locale,
        "zoneinfo": _parse_time_zone,
        **dict.fromkeys(_NAME_PARTS, partial(_parse_line, error=NamePartInvalid)),
        **dict.fromkeys(("profile", "website"), partial(_parse_url, error=ProfileUrlInvalid)),
        "birthdate": _parse_birthdate,
    }
)


def parse_fact(name: str, text: str) -> str:
    """Return the valid form of a profile fact. Raises: the error of the fact, such as LocaleInvalid."""
    return _PARSERS[name](text)


@cache
def time_zones() -> frozenset[str]:
    """Return the names of all time zones, from the system or, where it has none, from the package tzdata."""
    return frozenset(zoneinfo.available_timezones() - _NO_TIME_ZONES)
