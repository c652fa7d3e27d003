"""A request's client address, which rate limits, the audit log and devices use (security N-1).

Hypercorn's ProxyFix is not used. It does not check the peer, so any client could choose its
address, and it also rewrites the Host header.
"""

from collections.abc import Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

# The value for a peer without an address, such as a unix socket. No client has this address.
NO_ADDRESS = "0.0.0.0"  # noqa: S104 - a placeholder, nothing binds to it


def client_address(peer: str | None, forwarded_for: str | None, trusted: Sequence[Network]) -> str:
    """Return the canonical client address: the peer, or the address that trusted proxies report.

    This is the right-most entry in X-Forwarded-For that is not a trusted proxy, because the client may have written
    everything to its left. At an entry that is not an address, return the last valid address.
    """
    if forwarded_for is None:
        return _canonical(peer)
    address = _address(peer) if peer is not None else None
    if address is None:
        return NO_ADDRESS
    return (forwarded_address(forwarded_for, trusted) if _is_trusted(address, trusted) else None) or str(address)


def forwarded_address(forwarded_for: str | None, trusted: Sequence[Network]) -> str | None:
    """Return the canonical client address that a trusted proxy reports, or None if its X-Forwarded-For ends with no address."""
    rest, comma, address = forwarded_for or "", ",", None
    while comma and (address is None or _is_trusted(address, trusted)):
        rest, comma, entry = rest.rpartition(",")
        forwarded = _forwarded(entry)
        if forwarded is None:
            break
        address = forwarded
    return None if address is None else str(address)


def is_local(peer: str | None) -> bool:
    """Return whether the peer is a program on this machine: at a loopback address, or without an address on a Unix socket."""
    address = _address(peer) if peer is not None else None
    return address is None or address.is_loopback


def limit_key(address: str) -> str:
    """Return the key for rate limits per client: the IPv4 address, or the /64 network of an IPv6 subscriber."""
    parsed = _address(address)
    if isinstance(parsed, IPv6Address):
        return f"{IPv6Address(int(parsed) >> 64 << 64)}/64"
    return address if parsed is None else str(parsed)


def _is_trusted(address: Address, trusted: Sequence[Network]) -> bool:
    return any(address in network for network in trusted)


def _forwarded(entry: str) -> Address | None:
    """Return the address in an X-Forwarded-For entry, or None. Some proxies add a port, and IPv6 then has brackets."""
    entry = entry.strip()
    if entry.startswith("["):
        entry, bracket, _ = entry[1:].partition("]")
        if not bracket:
            return None
    elif entry.count(":") == 1:
        entry, _, _ = entry.partition(":")
    # A zone names a network interface on the proxy. Here it has no meaning, and would turn an
    # address into many addresses.
    return None if "%" in entry else _address(entry)


@lru_cache(maxsize=8192)
def _canonical(peer: str | None) -> str:
    address = _address(peer) if peer is not None else None
    return NO_ADDRESS if address is None else str(address)


@lru_cache(maxsize=8192)
def _address(text: str) -> Address | None:
    """Return the address without its zone, or None. IPv4-mapped addresses, which dual-stack sockets report, become IPv4."""
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
