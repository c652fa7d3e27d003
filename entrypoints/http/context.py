"""What a view can reach: the ports, and who is calling."""

from typing import TYPE_CHECKING, cast

from quart import Response, current_app, g, request

from core.access import Anonymous, Caller, Person

if TYPE_CHECKING:
    from entrypoints.http.outer import Exchange
    from entrypoints.http.pages import Page
    from ports import Ports

# What is kept of a User-Agent header; the rest is noise, or an attempt to fill the disk (security.md L-3).
AGENT_LENGTH = 512


def ports() -> "Ports":
    return cast("Ports", current_app.extensions["ports"])


def exchange() -> "Exchange":
    """What the outer layer knows, and will log, of this exchange."""
    return cast("Exchange", request.scope["exchange"])  # type: ignore[typeddict-item]


def caller() -> Caller:
    """Whoever the access decorator found out is calling."""
    return cast("Caller", g.caller)


def signed_in() -> Person:
    """The caller of a route that only signed-in people reach."""
    found = caller()
    assert isinstance(found, Person), "only behind a decorator that lets people in"
    return found


def agent() -> str | None:
    value = request.headers.get("User-Agent")
    return None if value is None else value[:AGENT_LENGTH]


def anonymous() -> Anonymous:
    return Anonymous(address=exchange().address, agent=agent())


def page_response(page: "Page") -> Response:
    return Response(page.body, page.status, dict(page.headers))
