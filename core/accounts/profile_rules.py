"""The profile of a person: name, picture, locale and time zone, as in the claims of OpenID Connect (Core, section 5.1)."""

from __future__ import annotations

import re
import unicodedata
import zoneinfo
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Final, Self

from core.kernel import uris
from core.kernel.errors import Invalid
from core.kernel.values import KEEP, Keep, is_printable, provided

if TYPE_CHECKING:
    from core.kernel.principals import Person
    from core.kernel.values import Email

MAX_NAME_LENGTH: Final = 100
MAX_PICTURE_LENGTH: Final = 1024
MAX_LOCALE_LENGTH: Final = 64

# A well-formed language tag (RFC 5646 section 2.1), without the irregular ones that it keeps for old data.
_LANGUAGE_TAG: Final = re.compile(
    r"(?:[a-z]{2,3}(?:-[a-z]{3}){0,3}|[a-z]{4,8})"  # language
    r"(?:-[a-z]{4})?"  # script
    r"(?:-(?:[a-z]{2}|[0-9]{3}))?"  # region
    r"(?:-(?:[a-z0-9]{5,8}|[0-9][a-z0-9]{3}))*"  # variants
    r"(?:-[a-wyz0-9](?:-[a-z0-9]{2,8})+)*"  # extensions
    r"(?:-x(?:-[a-z0-9]{1,8})+)?",  # private use
    re.ASCII | re.IGNORECASE,
)
# Files beside the time zones of a system, which name no place.
_NO_TIME_ZONES: Final = frozenset({"Factory", "localtime"})


class NameInvalid(Invalid):
    """The name must have 1 to 100 characters, without line breaks and control characters. Shorten it, or leave it out."""


class PictureInvalid(Invalid):
    """The picture must be an absolute ASCII https URL of at most 1024 characters, without a user name or a fragment."""


class LocaleInvalid(Invalid):
    """The locale must be a language tag of BCP 47, such as en-US."""


class TimeZoneInvalid(Invalid):
    """The time zone must be a name of the IANA database, such as Europe/Berlin."""


@dataclass(frozen=True, slots=True)
class Profile:
    """What a person says about themselves. None: not set."""

    name: str | None = None
    picture: str | None = None  # an https URL
    locale: str | None = None  # a language tag, such as en-US
    zoneinfo: str | None = None  # a time zone, such as Europe/Berlin

    def changed_fields(self, new: Profile) -> list[str]:
        """Return the names of the fields that differ."""
        return [name for name in self.__slots__ if getattr(self, name) != getattr(new, name)]


NO_PROFILE: Final = Profile()


@dataclass(frozen=True, slots=True)
class OwnProfile:
    """The address and the profile of an account, as its user sees them."""

    email: Email
    pending_email: Email | None  # a requested new address that is not proved yet
    profile: Profile

    def seen_by(self, caller: Person) -> OwnProfile:
        """Return the profile as the caller sees it. An application does not learn a pending address."""
        return self if caller.service is None else replace(self, pending_email=None)


@dataclass(frozen=True, slots=True)
class ProfileChanges:
    """The new values of a profile. Fields that are KEEP stay as they are, and None removes a value."""

    name: str | Keep | None = KEEP
    picture: str | Keep | None = KEEP
    locale: str | Keep | None = KEEP
    zoneinfo: str | Keep | None = KEEP

    @classmethod
    def parse(
        cls,
        *,
        name: str | Keep | None = KEEP,
        picture: str | Keep | None = KEEP,
        locale: str | Keep | None = KEEP,
        zoneinfo: str | Keep | None = KEEP,
    ) -> Self:
        """Check the texts of a request. Spaces at their ends are removed.

        Raises: NameInvalid, PictureInvalid, LocaleInvalid, TimeZoneInvalid.
        """
        return cls(
            name=parse_name(name) if isinstance(name, str) else name,
            picture=_parse_picture(picture) if isinstance(picture, str) else picture,
            locale=_parse_locale(locale) if isinstance(locale, str) else locale,
            zoneinfo=_parse_time_zone(zoneinfo) if isinstance(zoneinfo, str) else zoneinfo,
        )

    @classmethod
    def valid_parts(cls, old: Profile, new: Profile) -> Self:
        """Return the changes between two profiles of unchecked texts, without those to a text that is not valid."""
        changes = dict[str, str | None]()
        for field in old.changed_fields(new):
            value = getattr(new, field)
            try:
                changes[field] = getattr(cls.parse(**{field: value}), field)
            except Invalid:
                continue
        return cls(**changes)

    def apply_to(self, profile: Profile) -> Profile:
        """Return the profile after these changes."""
        return replace(profile, **provided(name=self.name, picture=self.picture, locale=self.locale, zoneinfo=self.zoneinfo))


NO_CHANGES: Final = ProfileChanges()


def parse_name(text: str) -> str:
    """Return the name without spaces at its ends. Raises: NameInvalid."""
    name = text.strip()
    is_visible = any(unicodedata.category(letter)[0] in "LNPS" for letter in name)
    if not is_visible or len(name) > MAX_NAME_LENGTH or not is_printable(name):
        raise NameInvalid
    return name


def _parse_picture(text: str) -> str:
    url = text.strip()
    # `is_web_url` also allows http on the loopback interface.
    if len(url) > MAX_PICTURE_LENGTH or not url.lower().startswith("https://") or not uris.is_web_url(url):
        raise PictureInvalid
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


@cache
def time_zones() -> frozenset[str]:
    """Return the names of all time zones, from the system or, where it has none, from the package tzdata."""
    return frozenset(zoneinfo.available_timezones() - _NO_TIME_ZONES)
