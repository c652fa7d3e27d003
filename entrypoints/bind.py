"""Parsers for addresses in settings: listening addresses and name servers."""

import os
from ipaddress import IPv4Address, IPv6Address, ip_address

DNS_PORT = 53
SYSTEMD = "systemd"  # as SSO_BIND: the socket that systemd passes
UNIX = "unix:"  # before a Unix socket's path
LOCALHOST = "localhost"  # as host in SSO_BIND: the IPv4 and the IPv6 loopback address
LOOPBACK_ADDRESSES = (IPv4Address("127.0.0.1"), IPv6Address("::1"))
MAX_UNIX_PATH = 107  # bytes in a Unix socket's address


def parse_bind(text: str) -> tuple[str, int]:
    """Return the host and port in `host:port`, `[v6]:port` or `:port`.

    An empty host means all addresses of this machine. Raises: ValueError.
    """
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError("must look like localhost:8080, 127.0.0.1:8080, [::1]:8080 or :8080")
    return host.removeprefix("[").removesuffix("]"), int(port)


def unix_path(bind: str) -> str | None:
    """Return the path of a Unix socket, or None if the address is not a Unix socket."""
    return bind.removeprefix(UNIX) if bind.startswith(UNIX) else None


def check_bind(bind: str) -> None:
    """Check the address to listen on."""
    path = unix_path(bind)
    if path is not None:
        if not path.startswith("/") or path.endswith("/") or not 0 < len(os.fsencode(path)) <= MAX_UNIX_PATH:
            raise ValueError("must have an absolute path of at most 107 bytes, such as unix:/run/gatehouse/gatehouse.sock")
    elif bind != SYSTEMD:
        parse_bind(bind)


def has_own_address(bind: str) -> bool:
    """Return whether browsers could open this address. Otherwise a reverse proxy stands before the service."""
    return bind != SYSTEMD and unix_path(bind) is None


def is_localhost(bind: str) -> bool:
    """Return whether this address means the IPv4 and the IPv6 loopback address."""
    return has_own_address(bind) and parse_bind(bind)[0] == LOCALHOST


def parse_server(text: str) -> tuple[str, int]:
    """Return a name server's address and port: `192.0.2.1`, `192.0.2.1:5353`, `2001:db8::1` or `[2001:db8::1]:5353`."""
    try:
        try:
            return str(ip_address(text)), DNS_PORT
        except ValueError:
            host, port = parse_bind(text)
            address = IPv6Address(host) if text.startswith("[") else IPv4Address(host)
        if port == 0:
            raise ValueError
    except ValueError:
        raise ValueError("must be addresses, such as 192.0.2.1 or, with ports, 192.0.2.1:5353,[2001:db8::1]:5353") from None
    return str(address), port


def format_server(server: tuple[str, int]) -> str:
    """Return a name server as text that `parse_server` reads."""
    address, port = server
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
