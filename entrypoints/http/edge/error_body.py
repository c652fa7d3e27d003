"""The standard error body, for the application's errors and for requests that the middleware refuses."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from types import MappingProxyType
from typing import Final

from entrypoints.http.edge.size_limits import MAX_HEADER_BLOCK

# The messages for errors that have only a status.
SENTENCES = {
    400: "The request is not valid.",
    404: "There is no resource at this URL. Check the URL.",
    405: "This URL does not support this method. The header Allow lists the methods that it supports.",
    408: "The request took too long to arrive. Send it again.",
    413: "The request body is too large. Send a smaller one.",
    415: "The body must be JSON, with the header Content-Type: application/json.",
    431: f"The request headers are larger than {MAX_HEADER_BLOCK // 1024} KiB. Send fewer or shorter headers and cookies.",
    501: "This transfer encoding is not supported. Use chunked.",
    503: "The service is restarting. Try again.",
    505: "This version of HTTP is not supported. Use HTTP/1.1 or HTTP/1.0.",
}

# Codes that differ from the status phrase. Python has used two phrases for 413.
_CODES = {413: "PAYLOAD_TOO_LARGE", 429: "RATE_LIMIT_EXCEEDED"}

# All values that `error_code` can have.
ERROR_CODES = frozenset({
    "AUDIT_ERROR", "BAD_REQUEST", "BILLING_ERROR", "CONFLICT", "DATABASE_ERROR", "DEVICE_CODE_EXPIRED", "DEVICE_CODE_PENDING",
    "ENROLMENT_REQUIRED", "FORBIDDEN",
    "INTERNAL_SERVER_ERROR", "INVITATION_EXPIRED", "JWT_ERROR", "METHOD_NOT_ALLOWED", "NOT_FOUND", "NOT_IMPLEMENTED", "OAUTH_ERROR",
    "ORGANIZATION_NOT_ACTIVE", "PAYLOAD_TOO_LARGE", "RATE_LIMIT_EXCEEDED", "SERVICE_LIMIT_EXCEEDED", "TEAM_LIMIT_EXCEEDED", "TOKEN_EXPIRED",
    "UNAUTHORIZED", "UNSUPPORTED_MEDIA_TYPE", "REQUEST_TIMEOUT", "REQUEST_HEADER_FIELDS_TOO_LARGE", "SERVICE_UNAVAILABLE",
    "HTTP_VERSION_NOT_SUPPORTED",
})  # fmt: skip


def code_of(status: int) -> str:
    """Return a status's default error code."""
    return _CODES.get(status) or HTTPStatus(status).name


def internal_error_message(request_id: str) -> str:
    """Return the message for an internal error. It contains only the request id, which leads operators to the log line."""
    return f"Something went wrong on our side. Try again. If it keeps happening, report it with the request id {request_id}."


NO_FIELDS: Final[Mapping[str, str]] = MappingProxyType({})


def error_body(message: str, code: str, fields: Mapping[str, str] = NO_FIELDS) -> bytes:
    """Return the error body as JSON. `fields` are further members."""
    return json.dumps({"error": message, "error_code": code, "timestamp": _now(), **fields}).encode()


def oauth_error_of(status: int) -> str:
    """Return the OAuth error code for a failure that has only a status."""
    return "server_error" if status >= 500 else "invalid_request"


def oauth_error_body(message: str, code: str, oauth_error: str, fields: Mapping[str, str] = NO_FIELDS) -> bytes:
    """Return the error body for OAuth clients, where `error` is a code from RFC 6749 section 5.2. `fields` are further members."""
    body = {"error": oauth_error, "error_description": _as_described(message), "error_code": code, "timestamp": _now(), **fields}
    return json.dumps(body).encode()


SCIM_JSON = "application/scim+json"
SCIM_ERROR = "urn:ietf:params:scim:api:messages:2.0:Error"


def scim_error_body(status: int, detail: str, scim_type: str | None = None, *, as_text: bool = False) -> bytes:
    """Return the error body for directories (RFC 7644 section 3.12), with the status as a number, or `as_text`."""
    body: dict[str, object] = {"schemas": [SCIM_ERROR], "status": str(status) if as_text else status}
    if scim_type is not None:
        body["scimType"] = scim_type
    return json.dumps({**body, "detail": detail}).encode()


def speaks_scim(path: str) -> bool:
    """Return whether errors at this path have SCIM's format."""
    return path == "/scim" or path.startswith("/scim/")


def _as_described(message: str) -> str:
    """Replace the characters that an OAuth error_description must not contain: non-ASCII, controls, quotation marks, backslashes."""
    return "".join(letter if " " <= letter <= "~" and letter != "\\" else "?" for letter in message.replace('"', "'"))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
