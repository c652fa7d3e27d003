"""Rules for the URIs that organizations register: absolute, only characters from RFC 3986, and never ambiguous between two parsers.

Asterisks are refused although RFC 3986 allows them: admins would mean a wildcard, and there are no wildcards.
International hosts are converted to A-labels before a URI is checked and stored.
"""

import ipaddress
import re
from collections.abc import Collection, Mapping
from typing import Final
from urllib.parse import urlencode, urlsplit

from core.kernel import schemes, values
from core.kernel.values import to_a_labels

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_PATH_AND_QUERY = re.compile(r"[A-Za-z0-9._~!$&'()+,;=:@/?%-]*")
_AUTHORITY = re.compile(r"(?P<host>\[[^\]]*\]|[^:\[\]]*)(?::(?P<port>.*))?", re.DOTALL)
_PORT = re.compile(r"[1-9][0-9]{0,4}")
_IPV6 = re.compile(r"\[[0-9A-Fa-f:.]+\]")
# A URI's host in any spelling, and the text before and after it.
_AROUND_HOST = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)([^/?#:@\[\]]+)(.*)", re.DOTALL)
_OF_AN_APPLICATION = re.compile(r"[A-Za-z][A-Za-z0-9+-]*(?:\.[A-Za-z0-9+-]+)*")
# A percent sign without two hex digits (RFC 3986 section 2.1), and an escaped control character
# (security O-2).
_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_ESCAPED_CONTROL = re.compile(r"%[01]|%7[Ff]")
# Hosts that mean the machine on which a program runs (RFC 8252 sections 7.3 and 8.3).
LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
# The other ports below 1024 belong to other protocols. No tenant may make us connect to them.
WEB_PORTS: Final = frozenset({80, 443})
FIRST_FREE_PORT: Final = 1024
DEFAULT_PORTS: Final[Mapping[str, int]] = {"http": 80, "https": 443}
MAX_LABEL_LENGTH: Final = 63  # RFC 1035 section 2.3.4
NOT_WEB: Final = "it must start with https://, or with http:// on localhost, 127.0.0.1 or [::1], and have a host."
NOT_NATIVE: Final = (
    "it must start with https://, http://localhost, or a scheme of the application, such as com.example.app:/. "
    "Schemes that browsers or systems handle, such as javascript: and mailto:, are not allowed."
)
_BAD_HOST: Final = "its host must be a host name without a dot at the end, an IPv4 address, or an IPv6 address in brackets."
_Parts = tuple[str, str | None, int | None, str]


def to_ascii(uri: str) -> str:
    """Return the URI with an international host in A-labels, and all else as it is. If the host has no A-labels, nothing changes."""
    parts = _AROUND_HOST.fullmatch(uri)
    if parts is None or parts[2].isascii():
        return uri
    try:
        return f"{parts[1]}{to_a_labels(parts[2])}{parts[3]}"
    except values.DomainInvalid:
        return uri


def _to_unicode(uri: str) -> str:
    """Return the URI with its host's A-labels in Unicode (RFC 5890 section 2.3.2.1)."""
    parts = _AROUND_HOST.fullmatch(uri)
    if parts is None:
        return uri
    try:
        labels = [label[4:].encode().decode("punycode") if label.startswith("xn--") else label for label in parts[2].split(".")]
    except UnicodeError:
        return uri
    return f"{parts[1]}{'.'.join(labels)}{parts[3]}"


def find_registered(registered: Collection[str | None], requested: str | None) -> str | None:
    """Return the registered URI that equals the requested URI byte for byte, or that equals it with the host in Unicode (security O-2)."""
    if requested is None or requested in registered:
        return requested
    return None if requested.isascii() else next((uri for uri in registered if uri and _to_unicode(uri) == requested), None)


def canonicalize(url: str) -> str:
    """Return the URL with the host in A-labels, scheme and host in lower case, and without a default port. All else stays.

    A URL that is not valid is only converted to A-labels.
    """
    ascii_url = to_ascii(url)
    match _parts(ascii_url, controls=True):
        case (scheme, str(host), port, rest):
            return f"{scheme}://{host.lower()}{_shown_port(scheme, port)}{rest}"
    return ascii_url


def _shown_port(scheme: str, port: int | None) -> str:
    return "" if port in (None, DEFAULT_PORTS.get(scheme)) else f":{port}"


def web_flaw(uri: str) -> str | None:
    """Return why this is not an absolute https URL, or an http URL on the loopback interface, or None if it is.

    The answer completes a sentence. Its subject is "it", which means the URI.
    """
    parts = _parse(uri)
    if isinstance(parts, str):
        return parts
    return None if is_web_url(uri) else NOT_WEB


def native_flaw(uri: str) -> str | None:
    """Return the reason to refuse a native application's redirect URI, or None.

    The redirect URI must be a web URL, or an absolute URI with a private-use scheme.
    """
    if has_private_scheme(uri):
        return None
    flaw = web_flaw(uri)
    return NOT_NATIVE if flaw is NOT_WEB else flaw


def target_flaw(uri: str) -> str | None:
    """Return why we may not send requests to this URL, as `web_flaw` does, or None if we may."""
    # Escaped control characters stay escaped in the request, so only the receiver could interpret
    # them.
    match _parse(uri, controls=True):
        case str(flaw) if flaw is not NOT_WEB:
            return flaw
        case ("http" | "https", str(), port, _) if port is None or port in WEB_PORTS or port >= FIRST_FREE_PORT:
            return None
        case ("http" | "https", str(), _, _):
            return "its port must be 80, 443, or above 1023."
    return "it must start with https:// or http:// and have a host."


def is_web_url(uri: str) -> bool:
    """Return whether this is an absolute https URL, or an http URL on the loopback interface, without user name and fragment."""
    match _parts(uri):
        case ("https", str(), _, _):
            return True
        case ("http", str(host), _, _):
            return host.lower() in LOOPBACK
    return False


def normalize(uri: str) -> str | None:
    """Return the URI form in which two spellings are compared, or None if it is not valid.

    Scheme, host and a URN's namespace are in lower case, a default port is left out, and an empty path is `/` (RFC 3986
    sections 6.2.2.1 and 6.2.3, RFC 8141 section 3.1). Nothing else changes.
    """
    parts = _parts(to_ascii(uri))
    if parts is None:
        return None
    scheme, host, port, rest = parts
    if host is None:
        namespace, colon, name = rest.partition(":")
        return f"{scheme}:{namespace.lower() if scheme == 'urn' else namespace}{colon}{name}"
    return f"{scheme}://{host.lower()}{_shown_port(scheme, port)}{rest if rest.startswith('/') else f'/{rest}'}"


def host_of(uri: str) -> str | None:
    """Return the host in lower case, or None if the URI has none or is not valid."""
    parts = _parts(to_ascii(uri))
    return None if parts is None or parts[1] is None else parts[1].lower()


def start_of(uri: str) -> str | None:
    """Return the start page for the server or native application that the URI names, or None if the URI is not valid."""
    match _parts(to_ascii(uri)):
        case (scheme, str(host), port, _):
            return f"{scheme}://{host.lower()}{_shown_port(scheme, port)}/"
        case (scheme, None, _, rest) if rest:
            return f"{scheme}:/"
    return None


def is_on_loopback(uri: str) -> bool:
    """Return whether the URI's host is the loopback interface."""
    return host_of(uri) in LOOPBACK


def is_on_device(uri: str) -> bool:
    """Return whether a program on the user's own device answers this redirect URI: an application, or a server that any program can be.

    `localhost` and all names below it are the loopback interface (RFC 6761 section 6.3).
    """
    host = host_of(uri) or ""
    return not uri.startswith("https://") or host in LOOPBACK or host.endswith(".localhost") or _is_own_address(host)


def _is_own_address(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def is_same_server(uri: str, other: str) -> bool:
    """Return whether two URLs have the same host and port. All names for the loopback interface are the same host."""
    return _server_of(uri) == _server_of(other) is not None


def add_parameters(uri: str, parameters: Mapping[str, str]) -> str:
    """Return the URI or path, which has no fragment, with these parameters added to its query."""
    return f"{uri}{'&' if '?' in uri else '?'}{urlencode(parameters)}"


def has_port_of(uri: str, ports: Collection[int]) -> bool:
    """Return whether an absolute URL has one of these ports. A URL on the loopback interface may have any port."""
    match _parts(uri):
        case (scheme, str(host), port, _):
            return host.lower() in LOOPBACK or (port or DEFAULT_PORTS.get(scheme)) in ports
    return False


def has_private_scheme(uri: str) -> bool:
    """Return whether this is an absolute URI with a private-use scheme, such as com.example.app or cursor (RFC 8252 section 7.1)."""
    match _parts(uri):
        case (scheme, host, _, rest):
            return _OF_AN_APPLICATION.fullmatch(scheme) is not None and not schemes.is_refused(scheme) and bool(host or rest)
    return False


def equals_except_loopback_port(registered: str, asked: str) -> bool:
    """Return whether two loopback URIs are equal, or differ only in the port.

    A native application listens on a different port every time it runs (RFC 8252 section 7.3).
    """
    without_port = _without_loopback_port(registered)
    return without_port is not None and without_port == _without_loopback_port(asked)


def origin_of(url: str) -> str:
    """Return a URL's scheme, host and port in canonical form, as browsers send them, or an empty text if it is not a URL."""
    try:
        parts = urlsplit(canonicalize(url))
    except ValueError:
        return ""
    return f"{parts.scheme}://{parts.netloc}"


def _server_of(uri: str) -> tuple[str, int | None] | None:
    match _parts(to_ascii(uri)):
        case (scheme, str(host), port, _):
            return "localhost" if host.lower() in LOOPBACK else host.lower(), port or DEFAULT_PORTS.get(scheme)
    return None


def _without_loopback_port(uri: str) -> tuple[str, str] | None:
    match _parts(uri):
        case ("http", str(host), _, rest) if host.lower() in LOOPBACK:
            return host, rest
    return None


def _parts(uri: str, *, controls: bool = False) -> _Parts | None:
    parsed = _parse(uri, controls=controls)
    return None if isinstance(parsed, str) else parsed


def _parse(uri: str, *, controls: bool = False) -> _Parts | str:
    """Return scheme, host, port and the rest, or the flaw in an invalid URI, which is NOT_WEB without a scheme."""
    scheme, colon, rest = uri.partition(":")
    if not colon or not _SCHEME.fullmatch(scheme):
        return NOT_WEB
    if "#" in uri:
        return "it has a fragment. Remove the # and everything after it."
    if "*" in uri:
        return "it has an asterisk. There are no wildcards."
    host = port = None
    if rest.startswith("//"):
        authority = re.split(r"[/?]", rest[2:], maxsplit=1)[0]
        rest = rest[2 + len(authority) :]
        parsed = _parse_authority(authority) if authority else (None, None)
        if isinstance(parsed, str):
            return parsed
        host, port = parsed
    if _BROKEN_ESCAPE.search(uri):
        return "a percent sign must be followed by two hexadecimal digits. Write the percent sign itself as %25."
    if not controls and _ESCAPED_CONTROL.search(uri):
        return "it has an escaped control character, such as %0A."
    if not _PATH_AND_QUERY.fullmatch(rest):
        return "its path or query has a space or another character that URLs cannot have. Percent-encode it."
    return scheme.lower(), host, port, rest


def _parse_authority(authority: str) -> tuple[str, int | None] | str:
    """Return host and port, or the flaw in an invalid authority."""
    if "@" in authority:
        return "it has a user name. Remove everything before the @, and the @."
    parts = _AUTHORITY.fullmatch(authority)
    if parts is None:
        return _BAD_HOST
    host, port = parts["host"], parts["port"]
    if not host.isascii() and all(0 < len(label) <= MAX_LABEL_LENGTH for label in host.split(".")):
        return "the spelling of its international host name is not the usual one. Write its xn-- form."
    if not _is_host(host):
        return _BAD_HOST
    if port is None:
        return host, None
    if not _PORT.fullmatch(port) or int(port) >= 2**16:
        return "its port must be a number from 1 to 65535, without leading zeros."
    return host, int(port)


def _is_host(host: str) -> bool:
    if not host.startswith("["):
        # A host name must not contain underscores, but resolvers and browsers accept names with
        # them.
        return values.is_host_name(host.lower().replace("_", "x"))
    try:
        ipaddress.IPv6Address(host[1:-1])
    except ValueError:
        return False
    return _IPV6.fullmatch(host) is not None
