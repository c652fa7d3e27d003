"""The networks that belong to VPNs and proxies, from a list or from a file in MaxMind's format."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from itertools import islice
from pathlib import Path
from typing import Any, Final

from adapters import geoip

METADATA_MARKER: Final = b"\xab\xcd\xefMaxMind.com"
METADATA_SIZE: Final = 128 * 1024  # the marker is in the file's last 128 KiB (MaxMind DB format 2.0)
# The names in MaxMind's Anonymous IP file. A hosting provider alone is no VPN: companies send their
# traffic through such networks, too.
FLAGS: Final = ("is_anonymous", "is_anonymous_vpn", "is_public_proxy", "is_residential_proxy", "is_tor_exit_node")
CHECKED_RECORDS: Final = 1000  # checked at start, in a file in MaxMind's format
MAX_SHOWN: Final = 50  # characters quoted from a line in an error
MAPPED: Final = IPv6Network("::ffff:0:0/96")  # IPv4 addresses as IPv6 addresses
MAPPED_BITS: Final = 96


class NoAnonymizers:
    """Implements `ports.outside.Anonymizers` without a file: no address belongs to an anonymizer."""

    def has(self, address: str | None) -> bool:
        return False


class AnonymizerNetworks:
    """Implements `ports.outside.Anonymizers` with a network list.

    The networks are stored as intervals that do not overlap, so a lookup is a binary search.
    """

    def __init__(self, networks: Iterable[IPv4Network | IPv6Network]) -> None:
        by_version: dict[int, list[tuple[int, int]]] = {4: [], 6: []}
        for network in map(_unmapped_network, networks):
            by_version[network.version].append((int(network.network_address), int(network.broadcast_address)))
        self._intervals = {version: _merged(intervals) for version, intervals in by_version.items()}

    def has(self, address: str | None) -> bool:
        parsed = _parse(address)
        if parsed is None:
            return False
        starts, ends = self._intervals[parsed.version]
        number = int(parsed)
        position = bisect_right(starts, number)
        return position > 0 and number <= ends[position - 1]


class AnonymizerDatabase:
    """Implements `ports.outside.Anonymizers` with a file in MaxMind's format that has the FLAGS, such as GeoIP2 Anonymous IP.

    The file is mapped into memory. To replace it, rename the new file over it and reload.
    """

    def __init__(self, reader: geoip.Reader) -> None:
        self._reader = reader

    def has(self, address: str | None) -> bool:
        parsed = _parse(address)
        try:
            return parsed is not None and _is_flagged(self._reader.get(parsed))
        except geoip.LOOKUP_ERRORS:
            return False


class AnonymizerFile:
    """Implements `ports.outside.Anonymizers` with a file in either format, which can be replaced.

    Raises: FileUnreadable.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.reload()

    def reload(self) -> None:
        """Read the file again. If the new file is not usable, continue with the old file. Raises: FileUnreadable."""
        self._anonymizers = open_anonymizers(self._path)

    def has(self, address: str | None) -> bool:
        return self._anonymizers.has(address)


def open_anonymizers(path: Path) -> AnonymizerNetworks | AnonymizerDatabase:
    """Open the file with the networks of VPNs and proxies. The file's content decides about its format.

    Raises: FileUnreadable.
    """
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - METADATA_SIZE))
            if METADATA_MARKER in file.read():
                return AnonymizerDatabase(_open_database(path))
        networks = [*_read_networks(path, path.read_bytes())]
    except OSError as error:
        raise geoip.FileUnreadable(f"{path} cannot be read: {error.strerror}") from None
    if not networks:
        raise geoip.FileUnreadable(f"{path} has no networks")
    return AnonymizerNetworks(networks)


def _open_database(path: Path) -> geoip.Reader:
    try:
        reader = geoip.open_reader(path)
        records = [record for _, record in islice(reader, CHECKED_RECORDS)]
    except geoip.LOOKUP_ERRORS:
        raise geoip.FileUnreadable(f"{path} is damaged, or not a file in MaxMind's format") from None
    # An unrelated file, such as a city file, would silently flag no address.
    if not any(isinstance(record, dict) and not record.keys().isdisjoint(FLAGS) for record in records):
        raise geoip.FileUnreadable(f"{path} has no flags such as {FLAGS[0]}: use a file of anonymous networks")
    return reader


def _read_networks(path: Path, content: bytes) -> Iterator[IPv4Network | IPv6Network]:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise geoip.FileUnreadable(f"{path} is neither a text file nor a file in MaxMind's format") from None
    for number, line in enumerate(text.splitlines(), 1):
        network = line.partition("#")[0].strip()
        if network:
            try:
                yield ip_network(network, strict=False)
            except ValueError:
                shown = network[:MAX_SHOWN]
                raise geoip.FileUnreadable(f"{path}, line {number}: {shown!r} is not a network such as 192.0.2.0/24") from None


def _parse(address: str | None) -> IPv4Address | IPv6Address | None:
    """Return the address, or None if it is missing or malformed. An IPv4 address in an IPv6 address becomes an IPv4 address."""
    try:
        parsed = ip_address(address or "")
    except ValueError:
        return None
    return (parsed.ipv4_mapped or parsed) if isinstance(parsed, IPv6Address) else parsed


def _unmapped_network(network: IPv4Network | IPv6Network) -> IPv4Network | IPv6Network:
    if isinstance(network, IPv6Network) and network.subnet_of(MAPPED):
        mapped = network.network_address.ipv4_mapped
        return ip_network(f"{mapped}/{network.prefixlen - MAPPED_BITS}")
    return network


def _merged(intervals: list[tuple[int, int]]) -> tuple[list[int], list[int]]:
    """Return the starts and the ends of the intervals, sorted, with overlapping intervals merged."""
    starts: list[int] = []
    ends: list[int] = []
    for start, end in sorted(intervals):
        if ends and start <= ends[-1] + 1:
            ends[-1] = max(ends[-1], end)
        else:
            starts.append(start)
            ends.append(end)
    return starts, ends


def _is_flagged(record: Any) -> bool:
    return isinstance(record, dict) and any(record.get(flag) is True for flag in FLAGS)
