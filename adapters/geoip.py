"""Where addresses are, by a file in MaxMind's format, or nowhere."""

from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

import maxminddb

from core.accounts.devices_rules import Location
from core.kernel.values import to_printable

LENGTH: Final = 100  # characters of a name

# What the reader raises at something broken, or at an address that is none, or none that the file can hold.
BROKEN: Final = (maxminddb.InvalidDatabaseError, RecursionError, TypeError, ValueError)


class GeoIpFileUnreadable(Exception):
    """The file cannot be used; the text names it, and says why."""


class NoGeoIp:
    """ports.outside.Places where no file is configured: no place is known."""

    def of(self, address: str | None) -> Location | None:
        return None


class GeoIpFile:
    """ports.outside.Places from a file of cities, such as GeoLite2-City or DB-IP City Lite. Raises PlacesUnreadable.

    The file is mapped into memory, so it must be replaced by renaming another one over it, and is read again at the next start.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._reader = maxminddb.open_database(path, maxminddb.MODE_MMAP)
            self._reader.get("0.0.0.1")  # a file that was cut short opens all the same
        except OSError as error:
            raise GeoIpFileUnreadable(f"{path} cannot be read: {error.strerror}") from None
        except BROKEN:
            raise GeoIpFileUnreadable(f"{path} is not a file in MaxMind's format") from None

    def of(self, address: str | None) -> Location | None:
        try:
            return _place(self._reader.get(ip_address(address or "")))
        except BROKEN:
            return None


def _place(record: Any) -> Location | None:
    """By the names that MaxMind's files of cities and countries have, and others after them."""
    country = _text(record, "country", "iso_code")
    return None if country is None else Location(_text(record, "city", "names", "en"), country)


def _text(record: Any, *path: str) -> str | None:
    for name in path:
        if not isinstance(record, dict):
            return None
        record = record.get(name)
    return to_printable(record[:LENGTH]) if isinstance(record, str) and record else None
