"""The client's address: only a trusted proxy can forward another address."""

from ipaddress import ip_network

from entrypoints.http.edge.client_address import NO_ADDRESS, client_address, forwarded_address, is_local, limit_key
from tests.tables import table

PROXIES = (ip_network("10.0.0.0/8"), ip_network("fd00::/8"))


@table(
    ("peer", "forwarded_for", "expected"),
    [
        ("198.51.100.7", None, "198.51.100.7"),
        ("198.51.100.7", "203.0.113.5", "198.51.100.7"),  # an untrusted peer: its header is ignored
        ("10.0.0.1", None, "10.0.0.1"),
        ("10.0.0.1", "203.0.113.5", "203.0.113.5"),
        ("10.0.0.1", "198.51.100.7, 203.0.113.5", "203.0.113.5"),  # the client wrote the left part
        ("10.0.0.1", "198.51.100.7, 203.0.113.5, 10.2.3.4", "203.0.113.5"),  # two trusted proxies
        ("10.0.0.1", "10.9.9.9, 10.2.3.4", "10.9.9.9"),  # only trusted proxies: the farthest address
        ("10.0.0.1", "203.0.113.5, rubbish", "10.0.0.1"),
        ("10.0.0.1", "203.0.113.5, rubbish, 10.2.3.4", "10.2.3.4"),  # the last valid address
        ("10.0.0.1", "203.0.113.5,", "10.0.0.1"),
        ("10.0.0.1", "", "10.0.0.1"),
        ("10.0.0.1", "unknown", "10.0.0.1"),
        ("10.0.0.1", "203.0.113.5:4711", "203.0.113.5"),
        ("10.0.0.1", "[2001:DB8::0005]:4711", "2001:db8::5"),
        ("10.0.0.1", "[2001:db8::5", "10.0.0.1"),
        ("10.0.0.1", "2001:0db8:0000::0005", "2001:db8::5"),
        ("10.0.0.1", "::ffff:203.0.113.5", "203.0.113.5"),
        ("10.0.0.1", "fe80::1%25eth0", "10.0.0.1"),
        ("10.0.0.1", "0203.0.113.5", "10.0.0.1"),  # some readers take 010 as octal, and would see another address
        ("::ffff:10.0.0.1", "203.0.113.5", "203.0.113.5"),  # a trusted proxy on a dual-stack socket
        ("::ffff:198.51.100.7", "203.0.113.5", "198.51.100.7"),
        ("fd00::1", "2001:db8::5", "2001:db8::5"),
        ("fe80::1%eth0", None, "fe80::1"),
        (None, "203.0.113.5", NO_ADDRESS),
        ("<local>", "203.0.113.5", NO_ADDRESS),
    ],
)
def test_the_client_is_the_rightmost_address_that_is_not_a_trusted_proxy(
    peer: str | None, forwarded_for: str | None, expected: str
) -> None:
    assert client_address(peer, forwarded_for, PROXIES) == expected


@table(
    ("forwarded_for", "expected"),
    [
        ("203.0.113.5", "203.0.113.5"),
        ("198.51.100.7, 203.0.113.5", "203.0.113.5"),
        ("203.0.113.5, 10.2.3.4", "203.0.113.5"),
        ("rubbish, 10.2.3.4", "10.2.3.4"),
        ("203.0.113.5, unix:", None),
        ("", None),
        (None, None),
    ],
)
def test_the_peer_of_a_unix_socket_is_a_trusted_proxy(forwarded_for: str | None, expected: str | None) -> None:
    assert forwarded_address(forwarded_for, PROXIES) == expected


def test_a_proxy_on_this_machine_has_a_loopback_address_or_none() -> None:
    assert all(is_local(peer) for peer in (None, "127.0.0.1", "::1", "::ffff:127.0.0.1"))
    assert not any(is_local(peer) for peer in ("10.0.0.1", "192.0.2.1", "::ffff:192.0.2.1", "fe80::1"))


def test_without_proxies_the_client_is_the_peer() -> None:
    assert client_address("10.0.0.1", "203.0.113.5", ()) == "10.0.0.1"


@table(
    ("address", "expected"),
    [
        ("203.0.113.5", "203.0.113.5"),
        ("::ffff:203.0.113.5", "203.0.113.5"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::1", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::1", "2001:db8:1:3::/64"),
        ("::1", "::/64"),
    ],
)
def test_limits_count_ipv6_networks_instead_of_addresses(address: str, expected: str) -> None:
    assert limit_key(address) == expected
