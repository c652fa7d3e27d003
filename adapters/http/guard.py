"""Address checks for every connection to a target that a tenant chose: webhooks, SIEMs, mail servers (security W-1, W-3).

The guard resolves a name once and checks all its addresses. The caller connects to the returned addresses, never to the
name: a second lookup could return another address (DNS rebinding). TLS and the Host header still use the name. Every
attempt resolves the name again. Targets from the operator's settings are not checked.
"""

import ipaddress
import socket
from collections.abc import Callable, Iterable, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Any, Final, Self

import trio

from adapters.threads import TrioThreads
from core.kernel import outbound

LOOKUP_DEADLINE: Final = 5.0  # seconds
# Concurrent lookups. After its deadline a lookup continues in its thread until the system's
# resolver gives up, about three times as long (`shorten_resolver_timeouts`).
# An organization uses fewer threads than are free, so a few organizations with silent name servers do not block the rest.
MAX_LOOKUPS: Final = 256
MAX_ADDRESSES: Final = 4  # to try per name: a tenant can publish hundreds

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

# Networks that `is_global` accepts in some or all Python releases (security W-1).
_REFUSED: Final = tuple(
    ipaddress.ip_network(network)
    for network in (
        "0.0.0.0/8",
        "100.64.0.0/10",
        "192.0.0.0/24",
        "192.88.99.0/24",
        "198.18.0.0/15",
        "224.0.0.0/4",
        "240.0.0.0/4",
        "::/96",
        "64:ff9b::/96",
        "64:ff9b:1::/48",
        "2001::/23",
        "2002::/16",
        "3fff::/20",
        "5f00::/16",
        "fc00::/7",
        "fe80::/10",
        "fec0::/10",
        "ff00::/8",
    )
)
_MAPPED: Final = IPv6Network("::ffff:0:0/96")


class TargetRefused(outbound.SendFailed):
    """The target may not be connected to, or has no address. The reason is NOT_ALLOWED or NOT_RESOLVED."""


@dataclass(frozen=True, slots=True)
class AllowedTarget:
    """A network that tenants may reach although it is not public, on a single port or on all ports."""

    network: Network
    port: int | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `10.0.0.0/8`, `127.0.0.1:2525`, `fd00::/8` or `[fd00::/8]:2525`. Raises: ValueError."""
        if "%" in text:
            raise ValueError("addresses with a scope id are never allowed")
        network: Network
        if text.startswith("["):
            address, separator, port = text[1:].partition("]:")
            network = IPv6Network(address)
        elif text.count(":") == 1:
            address, separator, port = text.partition(":")
            network = IPv4Network(address)
        else:
            return cls(ipaddress.ip_network(text))
        if not (separator and port.isascii() and port.isdigit() and 1 <= int(port) <= 65535):
            raise ValueError("a port must be between 1 and 65535")
        return cls(network, int(port))

    def covers(self, address: Address, port: int) -> bool:
        return self.port in (None, port) and address in self.network


# For URLs in the operator's settings (security W-1)
EVERYWHERE: Final = (AllowedTarget(IPv4Network("0.0.0.0/0")), AllowedTarget(IPv6Network("::/0")))


def parse_allowed_targets(text: str) -> tuple[AllowedTarget, ...]:
    """Parse `SSO_OUTBOUND_ALLOW`. Raises: ValueError, with a text that follows the setting's name in a sentence."""
    targets = []
    for position, entry in enumerate((part.strip() for part in text.split(",")), 1):
        if not entry:
            continue
        try:
            target = AllowedTarget.parse(entry)
        except ValueError:
            raise ValueError(
                f"has an entry, number {position}, that is neither a network, such as 10.0.0.0/8 or fd00::/8, "
                "nor a network and a port, such as 127.0.0.1:2525 or [fd00::/8]:443"
            ) from None
        if isinstance(target.network, IPv6Network) and target.network.subnet_of(_MAPPED):
            raise ValueError(f"has an entry, number {position}, with IPv4-mapped IPv6 addresses: write them as IPv4")
        targets.append(target)
    return tuple(targets)


def is_public(address: Address) -> bool:
    """Return whether this is a public address, to which any tenant's requests may go."""
    return address.is_global and not address.is_reserved and not any(address in network for network in _REFUSED)


def shorten_resolver_timeouts(environment: MutableMapping[str, str]) -> None:
    """Make the system's resolver give up sooner than after half a minute, because the callers have stopped waiting by then.

    Options that the operator has set are kept. Call this function before the first lookup.
    """
    environment.setdefault("RES_OPTIONS", "timeout:2 attempts:2")


# The type that `socket.getaddrinfo` has. Only the last item in a result is used: the address, for
# IPv6 with its scope.
Lookup = Callable[..., Sequence[tuple[Any, Any, Any, Any, tuple[Any, ...]]]]


class Guard:
    """Resolver that returns a target's addresses only if all addresses are allowed."""

    def __init__(
        self, allowed: Iterable[AllowedTarget] = (), *, lookup: Lookup = socket.getaddrinfo, deadline: float = LOOKUP_DEADLINE
    ) -> None:
        self._allowed = tuple(allowed)
        self._lookup = lookup
        self._deadline = deadline
        # A separate thread pool: a name server that does not answer must not block unrelated work
        # (security P-7).
        self._threads = TrioThreads(MAX_LOOKUPS)

    async def addresses(self, host: str, port: int) -> tuple[str, ...]:
        """Return the addresses to connect to, in the order to try them. Raises: TargetRefused."""
        addresses = await self._resolve(host, port)
        # Check all addresses, including addresses that are not tried: a single forbidden address
        # makes the whole name suspicious.
        if not all(self._is_allowed(address, port) for address in addresses):
            raise TargetRefused(outbound.SendFailure.NOT_ALLOWED)
        return tuple(dict.fromkeys(str(address) for address in addresses if address is not None))[:MAX_ADDRESSES]

    def _is_allowed(self, address: Address | None, port: int) -> bool:
        return address is not None and (is_public(address) or any(target.covers(address, port) for target in self._allowed))

    async def _resolve(self, host: str, port: int) -> list[Address | None]:
        with suppress(ValueError):
            return [_address((host, port))]  # the host is an address, so no lookup is needed
        try:
            with trio.fail_after(self._deadline):
                addresses = await self._threads.run(partial(self._look_up, host, port), abandons=True)
        except (trio.TooSlowError, OSError, ValueError):  # ValueError: the name is malformed
            raise TargetRefused(outbound.SendFailure.NOT_RESOLVED) from None
        if not addresses:
            raise TargetRefused(outbound.SendFailure.NOT_RESOLVED)
        return addresses

    def _look_up(self, host: str, port: int) -> list[Address | None]:
        return [_address(entry[4]) for entry in self._lookup(host, port, type=socket.SOCK_STREAM)]


def _address(socket_address: tuple[Any, ...]) -> Address | None:
    """Return the address, as IPv4 if it is IPv4-mapped, or None if it has a scope id (security W-1)."""
    text, _, *rest = socket_address
    address = ipaddress.ip_address(text)
    if isinstance(address, IPv4Address):
        return address
    if address.scope_id is not None or (len(rest) == 2 and rest[1] != 0):
        return None
    return address.ipv4_mapped or address
