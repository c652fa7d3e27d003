"""The standard error body (organizations.md section 7): for the application's errors, and for what the outer layer refuses."""

import json
from datetime import UTC, datetime
from http import HTTPStatus

# What is said where there is no more to say than the status does.
SENTENCES = {
    400: "The request is not valid.",
    404: "There is nothing at this address.",
    405: "This method is not allowed here.",
    408: "The request took too long to arrive.",
    413: "The request body is too large.",
    415: "The body must be JSON, with the header Content-Type: application/json.",
    431: "The request headers are larger than 16 KiB.",
    501: "Of transfer encodings, only chunked is understood.",
    503: "The service is restarting. Try again.",
    505: "Only HTTP/1.1 and HTTP/1.0 are spoken here.",
}

# Where the code is not the status's own phrase; Python has called 413 by two names.
_CODES = {413: "PAYLOAD_TOO_LARGE", 429: "RATE_LIMIT_EXCEEDED"}


def code_of(status: int) -> str:
    """The default error code of a status (decisions, point 2)."""
    return _CODES.get(status) or HTTPStatus(status).name


def failed(request_id: str) -> str:
    """The sentence for a fault of ours, which says nothing about it but where to find it in the logs."""
    return f"Something went wrong on our side. If it happens again, report it with the request id {request_id}."


def error_body(message: str, code: str) -> bytes:
    return json.dumps({"error": message, "error_code": code, "timestamp": _now()}).encode()


def oauth_error_of(status: int) -> str:
    """What OAuth calls a failure of which no more is known than its status."""
    return "server_error" if status >= 500 else "invalid_request"


def oauth_error_body(message: str, code: str, oauth_error: str) -> bytes:
    """The same for those who speak OAuth: `error` is a code of RFC 6749 section 5.2 (decisions, point 94)."""
    body = {"error": oauth_error, "error_description": _as_described(message), "error_code": code, "timestamp": _now()}
    return json.dumps(body).encode()


SCIM_JSON = "application/scim+json"
SCIM_ERROR = "urn:ietf:params:scim:api:messages:2.0:Error"


def scim_error_body(status: int, detail: str, scim_type: str | None = None, *, as_text: bool = False) -> bytes:
    """The same for directories (RFC 7644 section 3.12). The status is a number, as identity.md section 4.6 has, or a text."""
    body: dict[str, object] = {"schemas": [SCIM_ERROR], "status": str(status) if as_text else status}
    if scim_type is not None:
        body["scimType"] = scim_type
    return json.dumps({**body, "detail": detail}).encode()


def speaks_scim(path: str) -> bool:
    """Whether whoever asks at this path is told of errors as directories are (decisions, point 127)."""
    return path == "/scim" or path.startswith("/scim/")


def _as_described(message: str) -> str:
    """Without the characters that a description must not have: all but printable ASCII, quotation marks and backslashes."""
    return "".join(letter if " " <= letter <= "~" and letter != "\\" else "?" for letter in message.replace('"', "'"))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
