"""Address checks for targets that tenants chose, and the networks that the operator allows (security W-1, W-3, P-7)."""

import socket
from ipaddress import ip_address, ip_network
from threading import Event
from typing import Any

import pytest
import trio
import trio.testing

from adapters.http.guard import (
    MAX_ADDRESSES,
    AllowedTarget,
    Guard,
    TargetRefused,
    is_public,
    parse_allowed_targets,
    shorten_resolver_timeouts,
)
from core.kernel.outbound import SendFailure
from tests.tables import table

PUBLIC = ("1.1.1.1", "9.9.9.9", "198.20.0.1", "223.255.255.254", "2606:4700::1111", "2a00:1450:4001:82a::200e")
# Refused addresses by their network: the network's first and last addresses (security W-1).
REFUSED = {
    "this network": ("0.0.0.0", "0.255.255.255"),  # noqa: S104  (no server binds to it)
    "loopback": ("127.0.0.1", "127.255.255.254", "::1"),
    "private": ("10.0.0.1", "10.255.255.255", "172.16.0.1", "172.31.255.255", "192.168.0.1", "192.168.255.255"),
    "link-local": ("169.254.0.1", "169.254.169.254", "fe80::1", "febf:ffff::1"),
    "shared": ("100.64.0.1", "100.127.255.255"),
    "protocols": ("192.0.0.0", "192.0.0.9", "192.0.0.170", "192.0.0.255"),
    "documentation": ("192.0.2.1", "198.51.100.1", "203.0.113.9", "2001:db8::1", "3fff::1", "3fff:fff:ffff::1"),
    "6to4": ("192.88.99.0", "192.88.99.2", "192.88.99.255", "2002:7f00:1::", "2002:a00:1::1", "2002:101:101::1"),
    "benchmarks": ("198.18.0.1", "198.19.255.255", "2001:2::1"),
    "multicast": ("224.0.0.1", "233.252.0.1", "239.255.255.255", "ff02::1", "ff0e::1"),
    "reserved": ("240.0.0.1", "255.255.255.254", "255.255.255.255", "4000::1", "100::1", "100:0:0:1::1", "fe00::1"),
    "unspecified": ("::",),
    "IPv4-compatible": ("::127.0.0.1", "::10.0.0.1", "::1.1.1.1"),
    "translated": ("::ffff:0:127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a00:1", "64:ff9b::101:101", "64:ff9b:1::a00:1"),
    "Teredo and its like": ("2001::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001:1::1", "2001:20::1", "2001:1ff::1"),
    "segment routing": ("5f00::1",),
    "unique local": ("fc00::1", "fd00::1", "fdff:ffff::1"),
    "site-local": ("fec0::1", "feff::1"),
}


def lookup_of(addresses: dict[str, list[str]]) -> Any:
    """Return a lookup that knows these names, and IP addresses."""

    def look_up(host: str, port: int, **options: Any) -> list[tuple[Any, Any, Any, Any, tuple[Any, ...]]]:
        assert options["type"] == socket.SOCK_STREAM
        if host not in addresses:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        results: list[tuple[Any, Any, Any, Any, tuple[Any, ...]]] = []
        for address in addresses[host]:
            plain, _, scope = address.partition("%")
            sockaddr = (plain, port, 0, int(scope or 0)) if ":" in plain else (plain, port)
            results.append((None, socket.SOCK_STREAM, 6, "", sockaddr))
        return results

    return look_up


async def refusal(guard: Guard, host: str, port: int = 443) -> SendFailure:
    """Return the reason for a refusal. The error contains nothing but this reason."""
    with pytest.raises(TargetRefused) as caught:
        await guard.addresses(host, port)
    assert str(caught.value) == caught.value.reason.value
    assert caught.value.__cause__ is None
    return caught.value.reason


@table("address", PUBLIC)
async def test_a_public_address_is_allowed(address: str) -> None:
    assert await Guard().addresses(address, 443) == (address,)


@table(("case", "address"), [(case, address) for case, addresses in REFUSED.items() for address in addresses])
async def test_an_address_that_is_not_public_is_refused(case: str, address: str) -> None:
    assert not is_public(ip_address(address)), case
    assert await refusal(Guard(lookup=lookup_of({"target.example": [address]})), "target.example") is SendFailure.NOT_ALLOWED


@table("address", ["127.0.0.1", "10.0.0.1", "169.254.169.254", "0.0.0.0", "255.255.255.255"])  # noqa: S104
async def test_an_ipv4_mapped_address_is_checked_as_ipv4(address: str) -> None:
    assert await refusal(Guard(), f"::ffff:{address}") is SendFailure.NOT_ALLOWED
    openings = parse_allowed_targets(address)
    assert await Guard(openings).addresses(f"::ffff:{address}", 443) == (address,)
    assert await Guard().addresses("::ffff:1.1.1.1", 443) == ("1.1.1.1",)


@table("host", ["2130706433", "0x7f.1", "0x7f000001", "127.1", "127.0.1", "0177.0.0.1", "017700000001", "0", "localhost"])
async def test_every_spelling_of_loopback_is_refused(host: str) -> None:
    assert await refusal(Guard(), host) is SendFailure.NOT_ALLOWED


@table("address", ["fe80::1%1", "2606:4700::1111%2", "::1%1"])
async def test_an_address_of_a_single_interface_is_refused_even_in_an_allowed_network(address: str) -> None:
    all_addresses = parse_allowed_targets("::/0,0.0.0.0/0")
    assert await refusal(Guard(all_addresses, lookup=lookup_of({"target.example": [address]})), "target.example") is SendFailure.NOT_ALLOWED


@table("host", ["", "a" * 64, "a" * 300, "x..y", "a\0b", "\udc80.example"])
async def test_a_malformed_name_is_not_resolved(host: str) -> None:
    assert await refusal(Guard(), host) is SendFailure.NOT_RESOLVED


async def test_an_unknown_name_is_not_resolved() -> None:
    guard = Guard(lookup=lookup_of({"empty.example": []}))
    assert await refusal(guard, "unknown.example") is SendFailure.NOT_RESOLVED
    assert await refusal(guard, "empty.example") is SendFailure.NOT_RESOLVED


# Names with several addresses, and names that change


@table("bad", ["127.0.0.1", "10.1.2.3", "::1", "::ffff:127.0.0.1", "fe80::1%1"])
@table("place", [0, 1, 9])
async def test_a_name_with_a_good_and_a_bad_address_is_refused(bad: str, place: int) -> None:
    addresses = [f"198.20.0.{number}" for number in range(9)]
    addresses.insert(place, bad)
    assert await refusal(Guard(lookup=lookup_of({"both.example": addresses})), "both.example") is SendFailure.NOT_ALLOWED


async def test_the_first_distinct_addresses_are_returned_in_order() -> None:
    some = Guard(lookup=lookup_of({"some.example": ["2606:4700::1111", "1.1.1.1", "::ffff:1.1.1.1", "1.1.1.1"]}))
    assert await some.addresses("some.example", 443) == ("2606:4700::1111", "1.1.1.1")
    guard = Guard(lookup=lookup_of({"many.example": [f"198.20.0.{number}" for number in range(200)]}))
    assert await guard.addresses("many.example", 443) == tuple(f"198.20.0.{number}" for number in range(MAX_ADDRESSES))


async def test_each_attempt_resolves_the_name_once_and_checks_it_again() -> None:
    answers = [["1.1.1.1"], ["127.0.0.1"], ["9.9.9.9"]]
    lookup_count = 0

    def look_up(host: str, port: int, **options: Any) -> Any:
        nonlocal lookup_count
        lookup_count += 1
        return lookup_of({host: answers[lookup_count - 1]})(host, port, **options)

    guard = Guard(lookup=look_up)
    assert await guard.addresses("rebinds.example", 443) == ("1.1.1.1",)
    assert await refusal(guard, "rebinds.example") is SendFailure.NOT_ALLOWED
    assert await guard.addresses("rebinds.example", 443) == ("9.9.9.9",)
    assert lookup_count == 3


async def test_a_silent_name_server_delays_a_lookup_only_until_the_deadline() -> None:
    release = Event()

    def look_up(*_: Any, **__: Any) -> Any:
        release.wait(30)
        return []

    guard = Guard(lookup=look_up, deadline=0.01)
    try:
        for _ in range(3):
            assert await refusal(guard, "slow.example") is SendFailure.NOT_RESOLVED
        # It uses no threads of other work.
        assert trio.to_thread.current_default_thread_limiter().borrowed_tokens == 0
    finally:
        release.set()


# Networks that the operator allows


@table(
    ("text", "targets"),
    [
        ("", ()),
        (" , ", ()),
        ("127.0.0.0/8", (AllowedTarget(ip_network("127.0.0.0/8")),)),
        ("10.1.2.3", (AllowedTarget(ip_network("10.1.2.3/32")),)),
        ("10.0.0.0/8:2525, 127.0.0.1:25", (AllowedTarget(ip_network("10.0.0.0/8"), 2525), AllowedTarget(ip_network("127.0.0.1/32"), 25))),
        ("fd00::/8,[fd00::/8]:443,", (AllowedTarget(ip_network("fd00::/8")), AllowedTarget(ip_network("fd00::/8"), 443))),
        ("[::1]:25", (AllowedTarget(ip_network("::1"), 25),)),
        ("::1:25", (AllowedTarget(ip_network("::1:25")),)),  # this is an address
        ("0.0.0.0/0,::/0", (AllowedTarget(ip_network("0.0.0.0/0")), AllowedTarget(ip_network("::/0")))),
    ],
)
def test_allowed_targets_are_networks_with_or_without_a_port(text: str, targets: tuple[AllowedTarget, ...]) -> None:
    assert parse_allowed_targets(text) == targets


@table(
    "entry",
    [
        *("localhost", "mail.example.com:25", "*", "10.0.0.1/8", "10.0.0.0/33", "10.0.0.0/8;10.1.0.0/16", "10.0.0.0/8 127.0.0.1"),
        *("127.0.0.1:", "127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:smtp", "127.0.0.1:-1", "127.0.0.1:+25", "127.0.0.1:٢٥"),
        *(":25", "127.0.0.1:" + "9" * 5000),
        *("[fd00::/8]", "[fd00::/8", "[fd00::/8]443", "[fd00::/8]:", "[fd00::1/8]:443", "[10.0.0.0/8]:443", "[]:443", "fd00::/8:443"),
        *("fe80::1%eth0", "::ffff:127.0.0.1", "::ffff:10.0.0.0/104", "[::ffff:127.0.0.1]:25"),
    ],
)
def test_the_error_for_a_malformed_target_has_its_position(entry: str) -> None:
    with pytest.raises(ValueError, match=r"^has an entry, number 2, ") as caught:
        parse_allowed_targets(f"10.0.0.0/8,{entry}")
    assert len(str(caught.value)) < 200


async def test_an_allowed_network_allows_no_other_network() -> None:
    guard = Guard(parse_allowed_targets("127.0.0.0/8,fd00::/8"))
    assert await guard.addresses("127.0.0.1", 25) == ("127.0.0.1",)
    assert await guard.addresses("fd00::25", 25) == ("fd00::25",)
    for host in ("10.0.0.1", "fe80::1", "fc00::1", "::ffff:10.0.0.1"):
        assert await refusal(guard, host) is SendFailure.NOT_ALLOWED
    assert await guard.addresses("1.1.1.1", 25) == ("1.1.1.1",)


async def test_an_allowed_network_with_a_port_allows_no_other_port() -> None:
    guard = Guard(parse_allowed_targets("127.0.0.0/8:2525,[fd00::/8]:2526"))
    assert await guard.addresses("127.0.0.1", 2525) == ("127.0.0.1",)
    assert await guard.addresses("fd00::1", 2526) == ("fd00::1",)
    for host, port in (("127.0.0.1", 2526), ("127.0.0.1", 25), ("fd00::1", 2525)):
        assert await refusal(guard, host, port) is SendFailure.NOT_ALLOWED


async def test_a_name_with_an_allowed_and_a_private_address_is_refused() -> None:
    guard = Guard(parse_allowed_targets("10.0.0.0/24"), lookup=lookup_of({"target.example": ["10.0.0.1", "10.0.1.1"]}))
    assert await refusal(guard, "target.example") is SendFailure.NOT_ALLOWED


async def test_a_hundred_lookups_at_silent_servers_leave_threads_for_others() -> None:
    released, lookup = Event(), lookup_of({"good.example": ["1.1.1.1"]})

    def look_up(host: str, port: int, **options: Any) -> Any:
        if host == "silent.example":
            released.wait(30)
        return lookup(host, port, **options)

    guard = Guard(lookup=look_up, deadline=30)
    try:
        async with trio.open_nursery() as nursery:
            for _ in range(100):
                nursery.start_soon(guard.addresses, "silent.example", 443)
            await trio.testing.wait_all_tasks_blocked()
            assert await guard.addresses("good.example", 443) == ("1.1.1.1",)
            nursery.cancel_scope.cancel()
    finally:
        released.set()


def test_resolver_timeouts_are_shortened_unless_the_operator_set_them() -> None:
    chosen = {"RES_OPTIONS": "timeout:9"}
    unset: dict[str, str] = {}
    shorten_resolver_timeouts(chosen)
    shorten_resolver_timeouts(unset)
    assert (chosen, unset) == ({"RES_OPTIONS": "timeout:9"}, {"RES_OPTIONS": "timeout:2 attempts:2"})
