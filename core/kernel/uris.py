"""URIs that organizations register with us: absolute, of the characters that RFC 3986 has for them, and nothing in them that two readers
could take differently. Asterisks are refused although URIs may have them: people mean a wildcard by them, and there is none.
"""

import ipaddress
import re
from typing import Final
from urllib.parse import urlsplit

from core.kernel.values import is_host_name

_PARTS = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):(?://(?P<authority>[^/?]*))?(?P<rest>[A-Za-z0-9._~!$&'()+,;=:@/?%-]*)")
_AUTHORITY = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+)(?::(?P<port>[1-9][0-9]{0,4}))?")
_OF_AN_APPLICATION = re.compile(r"[A-Za-z][A-Za-z0-9+-]*(?:\.[A-Za-z0-9+-]+)+")
# A percent sign that begins nothing (RFC 3986 section 2.1), and a control character in disguise (security.md O-2).
_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_ESCAPED_CONTROL = re.compile(r"%[01]|%7[Ff]")
# Names of the machine that a program runs on (RFC 8252 sections 7.3 and 8.3).
LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
# The other ports below 1024 are those of other protocols, which nobody shall make us speak to.
WEB_PORTS: Final = frozenset({80, 443})
FIRST_FREE_PORT: Final = 1024


def is_web(uri: str) -> bool:
    """Whether it is an absolute address of https, or of http on the loopback interface, without user name and fragment."""
    match _parts(uri):
        case ("https", str(), _, _):
            return True
        case ("http", str(host), _, _):
            return host.lower() in LOOPBACK
    return False


def is_target(uri: str) -> bool:
    """Whether we may be asked to send something there, as far as that can be told without looking up the host (security.md W-3)."""
    # Escaped control characters stay escaped on their way there: only that receiver could make something of them.
    match _parts(uri, controls=True):
        case ("http" | "https", str(), port, _):
            return port is None or port in WEB_PORTS or port >= FIRST_FREE_PORT
    return False


def is_of_an_application(uri: str) -> bool:
    """Whether it is absolute and has a scheme of an application's own, such as com.example.app (RFC 8252 section 7.1)."""
    match _parts(uri):
        case (scheme, host, _, rest):
            return _OF_AN_APPLICATION.fullmatch(scheme) is not None and bool(host or rest)
    return False


def is_same_but_for_port(registered: str, asked: str) -> bool:
    """Whether these differ in nothing but the port, on the same host of the loopback interface: a program there is given another one each
    time (RFC 8252 section 7.3)."""
    without_port = _without_loopback_port(registered)
    return without_port is not None and without_port == _without_loopback_port(asked)


def form_target(uri: str) -> str:
    """What a content security policy names so that a form may lead to this address: its origin.

    Of applications' own schemes there is nothing more to name than the scheme, nor of IPv6 addresses and of hosts with underscores, which a
    policy cannot name.
    """
    parts = urlsplit(uri)
    named = parts.scheme in ("http", "https") and is_host_name(parts.hostname or "")
    return f"{parts.scheme}:{f'//{parts.netloc.lower()}' if named else ''}"


def _without_loopback_port(uri: str) -> tuple[str, str] | None:
    match _parts(uri):
        case ("http", str(host), _, rest) if host.lower() in LOOPBACK:
            return host, rest
    return None


def _parts(uri: str, *, controls: bool = False) -> tuple[str, str | None, int | None, str] | None:
    """Scheme, host, port and the rest; None if it is not sound."""
    found = _PARTS.fullmatch(uri)
    if found is None or _BROKEN_ESCAPE.search(uri) or (not controls and _ESCAPED_CONTROL.search(uri)):
        return None
    host = port = None
    if found["authority"]:
        authority = _AUTHORITY.fullmatch(found["authority"])
        if authority is None or not _is_host(authority["host"]):
            return None
        if authority["port"] is not None:
            port = int(authority["port"])
            if port >= 2**16:
                return None
        host = authority["host"]
    return found["scheme"].lower(), host, port, found["rest"]


def _is_host(host: str) -> bool:
    if not host.startswith("["):
        # Underscores are nothing that hosts may have, but addresses with them are looked up, and browsers go there.
        return is_host_name(host.lower().replace("_", "x"))
    try:
        ipaddress.IPv6Address(host[1:-1])
    except ValueError:
        return False
    return True
