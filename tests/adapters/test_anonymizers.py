"""VPN and proxy networks from the operator's file."""

import random
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest
from mmdb_writer import MMDBWriter
from netaddr import IPSet  # type: ignore[import-untyped]

from adapters.anonymizers import AnonymizerDatabase, AnonymizerNetworks, NoAnonymizers, open_anonymizers
from adapters.geoip import FileUnreadable
from entrypoints.adapters_of_settings import anonymizers
from entrypoints.settings import Settings, SettingsInvalid
from tests.fakes.geoip import SHIPPED

LIST = """\ufeff# networks of VPNs
203.0.113.0/25
203.0.113.128/25   # the second half
198.51.100.7
192.0.2.99/28

2001:db8:1::/48
::ffff:100.64.0.0/106
"""


def database(path: Path, records: dict[str, Any]) -> Path:
    """Write a file in MaxMind's format."""
    writer = MMDBWriter(6, "Gatehouse-Test-Anonymous-IP", ipv4_compatible=True)
    for network, record in records.items():
        writer.insert_network(IPSet([network]), record)
    writer.to_db_file(str(path))
    return path


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("203.0.113.0", True),
        ("203.0.113.127", True),
        ("203.0.113.128", True),
        ("203.0.113.255", True),
        ("203.0.114.0", False),
        ("203.0.112.255", False),
        ("198.51.100.7", True),
        ("198.51.100.6", False),
        ("198.51.100.8", False),
        ("192.0.2.96", True),  # the line names another address in the network
        ("192.0.2.112", False),
        ("::ffff:203.0.113.9", True),
        ("::ffff:cb00:7109", True),
        ("::203.0.113.9", False),  # no IPv4-mapped address
        ("100.127.255.255", True),
        ("100.128.0.0", False),
        ("::ffff:100.64.0.1", True),
        ("2001:db8:1:ffff::1", True),
        ("2001:db8:2::", False),
        ("2001:db8::ffff", False),
        ("0.0.0.1", False),
        ("::", False),
        (None, False),
        ("", False),
        ("unix:", False),
        ("203.0.113.9:80", False),
    ],
)
def test_an_address_in_a_listed_network_is_found(tmp_path: Path, address: str | None, expected: bool) -> None:
    path = tmp_path / "vpns.txt"
    path.write_text(LIST, "utf-8")
    assert open_anonymizers(path).has(address) is expected
    assert NoAnonymizers().has(address) is False


def test_many_overlapping_networks_answer_like_a_search_of_all() -> None:
    chance = random.Random(0)  # noqa: S311

    def networks(bits: int, shortest: int) -> list[Any]:
        kind = ip_address(b"\0" * (bits // 8)).__class__
        return [ip_network((kind(chance.getrandbits(bits)), chance.randint(shortest, bits)), strict=False) for _ in range(500)]

    listed = [*networks(32, 8), *networks(128, 8)]
    lookup = AnonymizerNetworks(listed)
    for network in chance.sample(listed, 60):
        for number in (int(network.network_address), int(network.broadcast_address)):
            for near in (number - 1, number, number + 1):
                if 0 <= near < 2**network.max_prefixlen:
                    address = type(network.network_address)(near)
                    if address.version == 4 or address.ipv4_mapped is None:
                        expected = any(address in one for one in listed if one.version == address.version)
                        assert lookup.has(str(address)) is expected, address


def test_a_database_flags_anonymous_networks_but_no_mere_hosting(tmp_path: Path) -> None:
    records = {
        "203.0.113.0/25": {"is_anonymous": True, "is_anonymous_vpn": True},
        "203.0.113.128/25": {"is_anonymous": False, "is_hosting_provider": True},
        "198.51.100.0/24": {"is_public_proxy": True},
        "192.0.2.0/28": {"is_tor_exit_node": "yes"},
        "192.0.2.16/28": "is_anonymous",
        "2001:db8:1::/48": {"is_residential_proxy": True},
    }
    lookup = open_anonymizers(database(tmp_path / "anonymous.mmdb", records))
    assert isinstance(lookup, AnonymizerDatabase)
    flagged = ["203.0.113.9", "::ffff:203.0.113.9", "198.51.100.1", "2001:db8:1::5"]
    assert [address for address in flagged if not lookup.has(address)] == []
    others = ["203.0.113.200", "192.0.2.1", "192.0.2.17", "192.0.2.99", "2001:db8:2::1", None, "", "x"]
    assert [address for address in others if lookup.has(address)] == []


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"203.0.113.0/24\n# more\nvpn.example.com\n", "vpns, line 3: 'vpn.example.com' is not a network such as 192.0.2.0/24"),
        (b"203.0.113.0/33\n", "vpns, line 1: '203.0.113.0/33' is not a network such as 192.0.2.0/24"),
        (b"203.0.113.0/24,198.51.100.0/24", "vpns, line 1: '203.0.113.0/24,198.51.100.0/24' is not a network such as 192.0.2.0/24"),
        (b"", "vpns has no networks"),
        (b"# nothing yet\n\n", "vpns has no networks"),
        (b"\xff\xfe2\x000\x00", "vpns is neither a text file nor a file in MaxMind's format"),
        (SHIPPED.read_bytes(), "vpns has no flags such as is_anonymous: use a file of anonymous networks"),
        (SHIPPED.read_bytes()[len(SHIPPED.read_bytes()) // 2 :], "vpns is damaged, or not a file in MaxMind's format"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_at_start(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "vpns"
    path.write_bytes(content)
    with pytest.raises(FileUnreadable) as caught:
        open_anonymizers(path)
    assert str(caught.value) == f"{tmp_path}/{reason}"
    with pytest.raises(SettingsInvalid) as refusal:
        anonymizers(Settings(anonymizer_networks_file=path))
    assert str(refusal.value) == f"SSO_ANONYMIZER_NETWORKS_FILE is not usable: {tmp_path}/{reason}."


def test_a_file_that_cannot_be_read_is_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(FileUnreadable, match=r"missing\.txt cannot be read: No such file or directory$"):
        open_anonymizers(tmp_path / "missing.txt")
    with pytest.raises(FileUnreadable, match=r"cannot be read: Is a directory$"):
        open_anonymizers(tmp_path)
    assert isinstance(anonymizers(Settings()), NoAnonymizers)
