"""The guard of every call to a target that a tenant chose: webhooks, log receivers, mail servers, providers (security.md W-1, W-3).

A name is resolved once, every address that it has is judged, and the caller connects to the addresses that come back, never to the name:
otherwise a second look at the name could lead somewhere else (DNS rebinding). TLS and the Host header go on using the name. Each attempt
asks again. Targets from the operator's own settings do not come here.
"""

import ipaddress
import socket
from collections.abc import Callable, Iterable, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Any, Final, Self

import trio

from core.kernel.outbound import SendFailed, SendFailure

LOOKUP_DEADLINE: Final = 5.0  # seconds
# At once. One whose deadline has passed goes on until the system's resolver gives it up, which takes it some three times as long
# (`shorten_resolver_timeouts`): so many that those of one tenant, or ten, whose name servers are silent leave threads to everybody else.
LOOKUPS: Final = 256
# How many addresses of one name are tried: whoever lists hundreds shall not have us try them all.
MAX_ADDRESSES: Final = 4

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

# What `is_global` alone lets pass in some releases of Python, or in all of them (W-1).
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


class TargetRefused(SendFailed):
    """The target must not be connected to, or has no address that could be: NOT_ALLOWED, NOT_RESOLVED."""


@dataclass(frozen=True, slots=True)
class AllowedTarget:
    """What the operator lets tenants reach although it is not public; on one port, or on all."""

    network: Network
    port: int | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `10.0.0.0/8`, `127.0.0.1:2525`, `fd00::/8` or `[fd00::/8]:2525`. Raises ValueError."""
        if "%" in text:
            raise ValueError("addresses of one interface are never let through")
        network: Network
        if text.startswith("["):
            inner, mark, port = text[1:].partition("]:")
            network = IPv6Network(inner)
        elif text.count(":") == 1:
            inner, mark, port = text.partition(":")
            network = IPv4Network(inner)
        else:
            return cls(ipaddress.ip_network(text))
        if not (mark and port.isascii() and port.isdigit() and 1 <= int(port) <= 65535):
            raise ValueError("a port is 1 to 65535")
        return cls(network, int(port))

    def lets(self, address: Address, port: int) -> bool:
        return self.port in (None, port) and address in self.network


def parse_allowed_targets(text: str) -> tuple[AllowedTarget, ...]:
    """Read `SSO_OUTBOUND_ALLOW`. Raises ValueError, whose text is a clause to follow the setting's name."""
    openings = []
    for position, entry in enumerate((part.strip() for part in text.split(",")), 1):
        if not entry:
            continue
        try:
            opening = AllowedTarget.parse(entry)
        except ValueError:
            raise ValueError(
                f"has an entry, number {position}, that is neither a network, such as 10.0.0.0/8 or fd00::/8, "
                "nor a network and a port, such as 127.0.0.1:2525 or [fd00::/8]:443"
            ) from None
        if isinstance(opening.network, IPv6Network) and opening.network.subnet_of(_MAPPED):
            raise ValueError(f"has an entry, number {position}, with IPv4 addresses in the form of IPv6: write them as IPv4")
        openings.append(opening)
    return tuple(openings)


def is_public(address: Address) -> bool:
    """Whether anybody may have us connect to this address."""
    return address.is_global and not address.is_reserved and not any(address in network for network in _REFUSED)


def shorten_resolver_timeouts(environment: MutableMapping[str, str]) -> None:
    """Have the system's resolver give up when nobody waits any more, rather than after half a minute; unless the operator has said when
    it should. To be called before the first lookup."""
    environment.setdefault("RES_OPTIONS", "timeout:2 attempts:2")


# What `socket.getaddrinfo` gives, of which only the last item counts: the address, for IPv6 with its scope.
Lookup = Callable[..., Sequence[tuple[Any, Any, Any, Any, tuple[Any, ...]]]]


class Guard:
    """Gives the addresses of a target, if all of them may be reached."""

    def __init__(self, openings: Iterable[AllowedTarget] = (), *, lookup: Lookup = socket.getaddrinfo, deadline: float = LOOKUP_DEADLINE) -> None:
        self._openings = tuple(openings)
        self._lookup = lookup
        self._deadline = deadline
        # Threads of its own: a name server that does not answer takes none from anybody else (security.md P-7).
        self._threads = trio.CapacityLimiter(LOOKUPS)

    async def addresses(self, host: str, port: int) -> tuple[str, ...]:
        """The addresses to connect to, the one to try first coming first. Raises TargetRefused."""
        found = await self._resolve(host, port)
        # All of them, also those that will not be tried: a name that leads astray at times is not to be believed at others.
        if not all(self._lets(address, port) for address in found):
            raise TargetRefused(SendFailure.NOT_ALLOWED)
        return tuple(dict.fromkeys(str(address) for address in found if address is not None))[:MAX_ADDRESSES]

    def _lets(self, address: Address | None, port: int) -> bool:
        return address is not None and (is_public(address) or any(opening.lets(address, port) for opening in self._openings))

    async def _resolve(self, host: str, port: int) -> list[Address | None]:
        with suppress(ValueError):
            return [_address((host, port))]  # written as one already: nobody has to be asked
        try:
            with trio.fail_after(self._deadline):
                found = await trio.to_thread.run_sync(self._look_up, host, port, abandon_on_cancel=True, limiter=self._threads)
        except (trio.TooSlowError, OSError, ValueError):  # a name that cannot be one is a ValueError
            raise TargetRefused(SendFailure.NOT_RESOLVED) from None
        if not found:
            raise TargetRefused(SendFailure.NOT_RESOLVED)
        return found

    def _look_up(self, host: str, port: int) -> list[Address | None]:
        return [_address(entry[4]) for entry in self._lookup(host, port, type=socket.SOCK_STREAM)]


def _address(socket_address: tuple[Any, ...]) -> Address | None:
    """The address, an IPv4 one where it stands for that; None for one that is of some interface only (W-1)."""
    text, _, *rest = socket_address
    address = ipaddress.ip_address(text)
    if isinstance(address, IPv4Address):
        return address
    if address.scope_id is not None or (len(rest) == 2 and rest[1] != 0):
        return None
    return address.ipv4_mapped or address
