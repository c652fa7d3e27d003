"""The networks from which a sign-in policy lets admins act."""

from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_interface, ip_network
from typing import Final

Network = IPv4Network | IPv6Network
IPV4_IN_IPV6: Final = 96  # bits before an IPv4 address in an IPv6 address (::ffff:0:0/96)


def problem_of_network(text: str) -> str | None:
    """Return what is wrong with a network that can match no address, or None if it can match an address."""
    try:
        interface = ip_interface(text)
    except ValueError:
        return f"{text[:50]!r} is no network. Write an address, or as in 203.0.113.0/24."
    network = interface.network
    mapped = network.network_address.ipv4_mapped if isinstance(network, IPv6Network) else None
    if "%" in text:
        return f"{text[:50]} has a zone, which Gatehouse does not know. Leave the zone out."
    if mapped is not None and network.prefixlen >= IPV4_IN_IPV6:
        return f"Write {text} as an IPv4 network: {ip_network((mapped, network.prefixlen - IPV4_IN_IPV6), strict=False)}."
    if interface.ip != network.network_address:
        return f"{text} is an address in a network. Write {network}, or the address alone."
    return None


def is_in_networks(address: str, networks: Sequence[Network]) -> bool:
    """Return whether an IP address is in any of the networks."""
    ip = ip_address(address)
    if isinstance(ip, IPv6Address):
        ip = ip.ipv4_mapped or ip
    return any(ip in network for network in networks)
