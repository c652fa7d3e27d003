"""Locations for IP addresses, from a file in MaxMind's format."""

from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

import maxminddb

from core.accounts.model.devices import Location
from core.kernel.values import to_printable

MAX_NAME_LENGTH: Final = 100

# Reader errors for a damaged file, for a malformed address, and for an address that the file does
# not cover.
LOOKUP_ERRORS: Final = (maxminddb.InvalidDatabaseError, RecursionError, TypeError, ValueError)


Reader = maxminddb.Reader


class FileUnreadable(Exception):
    """The file cannot be used. The text has its path and the reason."""


def open_reader(path: Path) -> Reader:
    """Map a file in MaxMind's format into memory.

    Raises: OSError; the errors in LOOKUP_ERRORS.
    """
    return maxminddb.open_database(path, maxminddb.MODE_MMAP)


class NoGeoIp:
    """Implements `ports.outside.GeoIp` without a file: every location is unknown."""

    def locate(self, address: str | None) -> Location | None:
        return None


class GeoIpFile:
    """Implements `ports.outside.GeoIp` with a city file, such as GeoLite2-City or DB-IP City Lite.

    The file is mapped into memory. To replace it, rename the new file over it and reload.

    Raises: FileUnreadable.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.reload()

    def reload(self) -> None:
        """Read the file again. If the new file is not usable, continue with the old file. Raises: FileUnreadable."""
        path = self._path
        try:
            reader = open_reader(path)
            reader.get("0.0.0.1")  # a truncated file can be opened, but not read
        except OSError as error:
            raise FileUnreadable(f"{path} cannot be read: {error.strerror}") from None
        except LOOKUP_ERRORS:
            raise FileUnreadable(f"{path} is not a file in MaxMind's format") from None
        self._reader = reader

    def locate(self, address: str | None) -> Location | None:
        try:
            return _to_location(self._reader.get(ip_address(address or "")))
        except LOOKUP_ERRORS:
            return None


def _to_location(record: Any) -> Location | None:
    """Read a record with the field names in MaxMind's city and country files. Files from further vendors use the same names."""
    country = _text(record, "country", "iso_code")
    return None if country is None else Location(_text(record, "city", "names", "en"), country)


def _text(record: Any, *path: str) -> str | None:
    for name in path:
        if not isinstance(record, dict):
            return None
        record = record.get(name)
    return to_printable(record[:MAX_NAME_LENGTH]) if isinstance(record, str) and record else None
