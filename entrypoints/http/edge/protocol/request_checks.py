"""How a request is checked before it reaches the application (security P-5, P-6, N-5)."""

from collections.abc import MutableMapping
from dataclasses import dataclass
from functools import lru_cache
from os import urandom
from typing import Any, Protocol
from urllib.parse import unquote, unquote_to_bytes

from entrypoints.http.edge import error_body
from entrypoints.http.edge.size_limits import MAX_HEADER_BLOCK
from ports.observe import METHODS

Scope = MutableMapping[str, Any]

# These headers must not be repeated: two parts in the system could use different values (security
# P-6, Hypercorn issue 280).
_SIGNATURES = frozenset({b"billing-signature", b"stripe-signature"})
_SINGLE = _SIGNATURES | {b"authorization", b"content-type", b"dpop", b"x-api-key", b"transfer-encoding", b"content-length"}
_READ = _SINGLE | {b"accept", b"host", b"origin", b"x-forwarded-for", b"x-request-id", b"access-control-request-method"}

_REQUEST_ID_ALPHABET = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"


class Routes(Protocol):
    """Lookups in the application's routes. They must be fast. Paths have no trailing slash."""

    def methods(self, path: str) -> frozenset[str] | None:
        """Return the methods on the route at this path, or None if there is no route."""

    def changes_state(self, path: str) -> bool:
        """Return whether GET has side effects on this route, such as a verification link."""

    def allows_any_origin(self, path: str) -> bool:
        """Return whether scripts from every origin may read this route's responses."""


@dataclass(frozen=True, slots=True)
class DirectResponse:
    """A response that the middleware sends itself, without the application: an error, or the response to OPTIONS or HEAD."""

    status: int
    message: str = ""  # only for errors
    close: bool = False  # close the connection, because the rest of its input is untrusted or useless
    headers: tuple[tuple[bytes, bytes], ...] = ()

    @property
    def code(self) -> str:
        return error_body.code_of(self.status)


def scan_headers(scope: Scope) -> tuple[dict[bytes, bytes], bytes, int]:
    """Return the headers that the middleware reads, a repeated header's name or b"", and the total header size in bytes."""
    size = len(scope["raw_path"]) + len(scope["query_string"])
    headers: dict[bytes, bytes] = {}
    repeated = b""
    for name, value in scope["headers"]:
        size += len(name) + len(value) + 4
        if name in _READ:
            if name not in headers:
                headers[name] = value
            elif name in _SINGLE:
                repeated = name
            elif name == b"x-forwarded-for":
                headers[name] += b"," + value
    return headers, repeated, size


def check_request(scope: Scope, headers: dict[bytes, bytes], repeated: bytes, size: int) -> DirectResponse | None:
    """Return the error for a request that must not reach the application, or None (security P-5, P-6)."""
    version = scope["http_version"]
    if version not in ("1.1", "1.0") and scope["scheme"] == "http":
        return _NOT_HTTP_1
    if b"transfer-encoding" in headers and (b"content-length" in headers or version == "1.0"):
        # This prevents request smuggling: a proxy could use a different length than the server (RFC
        # 9112 section 6.1).
        return _AMBIGUOUS
    if repeated:
        framing = repeated in (b"content-length", b"transfer-encoding")
        return DirectResponse(400, f"The header {repeated.decode()} was sent more than once. Send it once.", close=framing)
    if size > MAX_HEADER_BLOCK:
        # The server limits only its buffer, so a larger block that arrives in a single piece passes
        # it.
        return DirectResponse(431, error_body.SENTENCES[431], close=True)
    if scope["method"] == "CONNECT":
        return _NO_PROXY
    return None


def normalize_target(scope: Scope, headers: dict[bytes, bytes]) -> DirectResponse | None:
    """Normalize `path` and `raw_path` for the route lookup: origin form, without a trailing slash.

    Return the error for a target that no route can have, or None.
    """
    raw: bytes = scope["raw_path"]
    if raw[:1] != b"/":
        # The absolute form must be accepted (RFC 9112 section 3.2.2). Quart would parse it
        # differently, and rules for certain paths could be bypassed.
        if raw == b"*" and scope["method"] == "OPTIONS":
            return None
        scheme, _, rest = raw.partition(b"://")
        authority, _, path = rest.partition(b"/")
        if scheme.lower() not in (b"http", b"https") or authority.lower() != headers.get(b"host", b"").lower():
            return DirectResponse(400, "The request target must be a path, such as /api/user.")
        raw = scope["raw_path"] = b"/" + path
        scope["path"] = unquote(raw.decode("ascii", "replace"))
    if raw[-1:] == b"/" and len(raw) > 1 and raw[-2:] != b"//":
        # A doubled slash is kept: that path is unknown.
        scope["raw_path"] = raw[:-1]
        scope["path"] = scope["path"][:-1]
    # No route has an encoded slash. Decoded, it would bypass path rules in a proxy in front. No
    # route has NUL, control characters, bidi overrides or invalid UTF-8 either (security N-5).
    if b"%2f" in raw.lower() or not scope["path"].isprintable() or (b"%" in raw and not _is_utf8(raw)):
        return DirectResponse(404, error_body.SENTENCES[404])
    return None


def _is_utf8(encoded: bytes) -> bool:
    try:
        unquote_to_bytes(encoded).decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def new_request_id() -> str:
    return urandom(12).hex()


def choose_request_id(offered: bytes | None) -> str:
    """Return the client's request id if it is harmless, or a new id."""
    if offered is not None and 8 <= len(offered) <= 64 and not offered.translate(None, _REQUEST_ID_ALPHABET):
        return offered.decode("ascii")
    return new_request_id()


@lru_cache(maxsize=256)
def allow_header(methods: frozenset[str]) -> bytes:
    implied = {"OPTIONS", "HEAD"} if "GET" in methods else {"OPTIONS"}
    return ", ".join(sorted(methods | implied)).encode()


_AMBIGUOUS = DirectResponse(
    400, "The length of the request body is ambiguous. Send either Content-Length or Transfer-Encoding.", close=True
)
_NOT_HTTP_1 = DirectResponse(505, error_body.SENTENCES[505], close=True)
_NO_PROXY = DirectResponse(
    405, "This server is not a proxy. Send the request to the host itself.", close=True, headers=((b"allow", allow_header(METHODS)),)
)
