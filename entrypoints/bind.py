"""Parsing of addresses in settings: listening addresses and name servers."""

from ipaddress import IPv4Address, IPv6Address, ip_address

DNS_PORT = 53


def parse_bind(text: str) -> tuple[str, int]:
    """Return host and port of `host:port`, `[v6]:port` or `:port`. An empty host means all addresses of the machine.

    Raises: ValueError.
    """
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError("must look like 127.0.0.1:8080, [::1]:8080 or :8080")
    return host.removeprefix("[").removesuffix("]"), int(port)


def parse_server(text: str) -> tuple[str, int]:
    """Return address and port of a name server: `192.0.2.1`, `192.0.2.1:5353`, `2001:db8::1` or `[2001:db8::1]:5353`.

    Raises: ValueError.
    """
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
