"""A rendered page, and the response with it."""

from collections.abc import Mapping
from dataclasses import dataclass

from quart import Response


@dataclass(frozen=True, slots=True)
class Page:
    """A rendered page. The middleware adds the headers that all responses have: `nosniff`, HSTS with https, the request id."""

    body: str
    status: int
    headers: Mapping[str, str]


def page_response(page: Page) -> Response:
    """Return the response for a rendered page."""
    return Response(page.body, page.status, dict(page.headers))
