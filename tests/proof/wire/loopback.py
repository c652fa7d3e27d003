"""This machine's loopback addresses."""

import socket
from functools import cache

IPV4, IPV6 = "127.0.0.1", "::1"


@cache
def has_ipv6() -> bool:
    """Return whether this machine has the IPv6 loopback address."""
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind((IPV6, 0))
    except OSError:
        return False
    return True


def family_of(host: str) -> socket.AddressFamily:
    """Return an IP address's family."""
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def address_of_localhost() -> str:
    """Return the address that clients on this machine use first for `localhost`."""
    return str(socket.getaddrinfo("localhost", None, type=socket.SOCK_STREAM)[0][4][0])
