"""Rules for the URIs that organizations register: absolute, only characters of RFC 3986, and never ambiguous between two parsers.

Asterisks are refused although RFC 3986 allows them: admins would mean a wildcard, and there are no wildcards.
"""

import ipaddress
import re
from collections.abc import Collection, Mapping
from typing import Final
from urllib.parse import urlencode, urlsplit

from core.kernel.values import is_host_name

_PARTS = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):(?://(?P<authority>[^/?]*))?(?P<rest>[A-Za-z0-9._~!$&'()+,;=:@/?%-]*)")
_AUTHORITY = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+)(?::(?P<port>[1-9][0-9]{0,4}))?")
_OF_AN_APPLICATION = re.compile(r"[A-Za-z][A-Za-z0-9+-]*(?:\.[A-Za-z0-9+-]+)+")
# A percent sign without two hex digits (RFC 3986 section 2.1), and an escaped control character
# (security O-2).
_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_ESCAPED_CONTROL = re.compile(r"%[01]|%7[Ff]")
# Hosts that mean the machine on which a program runs (RFC 8252 sections 7.3 and 8.3).
LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
# The other ports below 1024 belong to other protocols. No tenant may make us connect to them.
WEB_PORTS: Final = frozenset({80, 443})
FIRST_FREE_PORT: Final = 1024
_DEFAULT_PORTS: Final[Mapping[str, int]] = {"http": 80, "https": 443}


def is_web_url(uri: str) -> bool:
    """Return whether this is an absolute https URL, or an http URL on the loopback interface, without user name and fragment."""
    match _parts(uri):
        case ("https", str(), _, _):
            return True
        case ("http", str(host), _, _):
            return host.lower() in LOOPBACK
    return False


def normalize(uri: str) -> str | None:
    """Return the form of the URI in which two spellings are compared, or None if it is not valid.

    Scheme, host and the namespace of a URN are in lower case, a default port is left out, and an empty
    path is `/` (RFC 3986 sections 6.2.2.1 and 6.2.3, RFC 8141 section 3.1). Nothing else changes.
    """
    parts = _parts(uri)
    if parts is None:
        return None
    scheme, host, port, rest = parts
    if host is None:
        namespace, colon, name = rest.partition(":")
        return f"{scheme}:{namespace.lower() if scheme == 'urn' else namespace}{colon}{name}"
    shown_port = "" if port in (None, _DEFAULT_PORTS.get(scheme)) else f":{port}"
    return f"{scheme}://{host.lower()}{shown_port}{rest if rest.startswith('/') else f'/{rest}'}"


def host_of(uri: str) -> str | None:
    """Return the host in lower case, or None if the URI has none or is not valid."""
    parts = _parts(uri)
    return None if parts is None or parts[1] is None else parts[1].lower()


def is_on_loopback(uri: str) -> bool:
    """Return whether the host of the URI is the loopback interface."""
    return host_of(uri) in LOOPBACK


def is_same_server(uri: str, other: str) -> bool:
    """Return whether two URLs have the same host and port. All names of the loopback interface are one host."""
    return _server_of(uri) == _server_of(other) is not None


def add_parameters(uri: str, parameters: Mapping[str, str]) -> str:
    """Return the URI or path, which has no fragment, with these parameters added to its query."""
    return f"{uri}{'&' if '?' in uri else '?'}{urlencode(parameters)}"


def is_outbound_target(uri: str) -> bool:
    """Return whether we may send requests to this URL. The host is not looked up here (security W-3)."""
    # Escaped control characters stay escaped in the request, so only the receiver could interpret
    # them.
    match _parts(uri, controls=True):
        case ("http" | "https", str(), port, _):
            return port is None or port in WEB_PORTS or port >= FIRST_FREE_PORT
    return False


def has_port_of(uri: str, ports: Collection[int]) -> bool:
    """Return whether the port of an absolute URL is one of these. A URL on the loopback interface may have any."""
    match _parts(uri):
        case (scheme, str(host), port, _):
            return host.lower() in LOOPBACK or (port or _DEFAULT_PORTS.get(scheme)) in ports
    return False


def has_private_scheme(uri: str) -> bool:
    """Return whether this is an absolute URI with a private-use scheme, such as com.example.app (RFC 8252 section 7.1)."""
    match _parts(uri):
        case (scheme, host, _, rest):
            return _OF_AN_APPLICATION.fullmatch(scheme) is not None and bool(host or rest)
    return False


def equals_except_loopback_port(registered: str, asked: str) -> bool:
    """Return whether two loopback URIs are equal, or differ only in the port.

    A native application listens on another port each time it runs (RFC 8252 section 7.3).
    """
    without_port = _without_loopback_port(registered)
    return without_port is not None and without_port == _without_loopback_port(asked)


def origin_of(url: str) -> str:
    """Return scheme, host and port of a URL, or an empty text if it is not a URL."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    return f"{parts.scheme}://{parts.netloc}"


def _server_of(uri: str) -> tuple[str, int | None] | None:
    match _parts(uri):
        case (scheme, str(host), port, _):
            return "localhost" if host.lower() in LOOPBACK else host.lower(), port or _DEFAULT_PORTS.get(scheme)
    return None


def _without_loopback_port(uri: str) -> tuple[str, str] | None:
    match _parts(uri):
        case ("http", str(host), _, rest) if host.lower() in LOOPBACK:
            return host, rest
    return None


def _parts(uri: str, *, controls: bool = False) -> tuple[str, str | None, int | None, str] | None:
    """Return scheme, host, port and the rest, or None if the URI is not valid."""
    parts = _PARTS.fullmatch(uri)
    if parts is None or _BROKEN_ESCAPE.search(uri) or (not controls and _ESCAPED_CONTROL.search(uri)):
        return None
    host = port = None
    if parts["authority"]:
        authority = _AUTHORITY.fullmatch(parts["authority"])
        if authority is None or not _is_host(authority["host"]):
            return None
        if authority["port"] is not None:
            port = int(authority["port"])
            if port >= 2**16:
                return None
        host = authority["host"]
    return parts["scheme"].lower(), host, port, parts["rest"]


def _is_host(host: str) -> bool:
    if not host.startswith("["):
        # A host name must not contain underscores, but resolvers and browsers accept names with
        # them.
        return is_host_name(host.lower().replace("_", "x"))
    try:
        ipaddress.IPv6Address(host[1:-1])
    except ValueError:
        return False
    return True
