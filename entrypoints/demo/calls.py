"""HTTP calls of the demo's programs, with the standard library only."""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

TIMEOUT: Final = 30.0  # seconds
MAX_REPLY: Final = 1024 * 1024


class CallFailed(Exception):
    """A server did not answer, or not as its protocol says. The text is a sentence for the operator."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A response. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        """Return the object in the body."""
        try:
            value = json.loads(self.body)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise CallFailed(f"The server answered {self.status} without a JSON object.")
        return value


def call(method: str, url: str, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> Reply:
    """Send a request, and follow no redirect. Raises: CallFailed."""
    parts = urlsplit(url)
    connect = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = connect(parts.hostname or "", parts.port, timeout=TIMEOUT)
    try:
        connection.request(method, f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}", body, dict(headers or {}))
        response = connection.getresponse()
        return Reply(response.status, {name.lower(): value for name, value in response.getheaders()}, response.read(MAX_REPLY))
    except (OSError, HTTPException) as error:
        raise CallFailed(f"{parts.scheme}://{parts.netloc} does not answer: {error}. Start Gatehouse, and try again.") from None
    finally:
        connection.close()


def post_form(url: str, fields: Mapping[str, str], credentials: tuple[str, str] | None = None) -> Reply:
    """Send a form, with the client's credentials if it has a secret (RFC 6749 section 2.3.1)."""
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
    if credentials is not None:
        headers["Authorization"] = f"Basic {base64.b64encode(':'.join(credentials).encode()).decode()}"
    return call("POST", url, urlencode(fields).encode(), headers)
