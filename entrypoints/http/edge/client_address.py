"""Whose request it is: the address that limits, audit and devices go by (security.md N-1).

Hypercorn's ProxyFix is no substitute: it never looks at the peer, so anyone could name an address, and it rewrites Host as well.
"""

from collections.abc import Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

# What a peer without an address (a unix socket) is called: a valid address that belongs to nobody.
NOWHERE = "0.0.0.0"  # noqa: S104 - a name, nothing binds to it


def client_address(peer: str | None, forwarded_for: str | None, trusted: Sequence[Network]) -> str:
    """The canonical client address: the peer, or what trusted proxies say is behind them.

    The right-most entry of X-Forwarded-For that is not a trusted proxy itself counts: all left of it was written by the client. An
    entry that is no address ends the walk, and the last good one stands, for nothing left of it can be vouched for.
    """
    if forwarded_for is None:
        return _canonical(peer)
    address = _address(peer) if peer is not None else None
    if address is None:
        return NOWHERE
    rest = forwarded_for
    while _is_trusted(address, trusted):
        rest, comma, entry = rest.rpartition(",")
        found = _forwarded(entry)
        if found is None:
            break
        address = found
        if not comma:
            break
    return str(address)


def limit_key(address: str) -> str:
    """What a limit per client counts: an IPv4 address, or the /64 that one IPv6 subscriber owns and may roam in at will."""
    found = _address(address)
    if isinstance(found, IPv6Address):
        return f"{IPv6Address(int(found) >> 64 << 64)}/64"
    return address if found is None else str(found)


def _is_trusted(address: Address, trusted: Sequence[Network]) -> bool:
    return any(address in network for network in trusted)


def _forwarded(entry: str) -> Address | None:
    """One entry of X-Forwarded-For; some proxies add the port, and IPv6 then comes in brackets."""
    entry = entry.strip()
    if entry.startswith("["):
        entry, bracket, _ = entry[1:].partition("]")
        if not bracket:
            return None
    elif entry.count(":") == 1:
        entry, _, _ = entry.partition(":")
    # A zone names an interface of the proxy's machine: here it means nothing, and it would make one address into many.
    return None if "%" in entry else _address(entry)


@lru_cache(maxsize=8192)
def _canonical(peer: str | None) -> str:
    address = _address(peer) if peer is not None else None
    return NOWHERE if address is None else str(address)


@lru_cache(maxsize=8192)
def _address(text: str) -> Address | None:
    """The address with its zone taken off, and an IPv4-mapped one as the IPv4 address it is (a dual-stack socket reports those)."""
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
