"""What a view can reach: what serves it, and who is calling."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from quart import Quart, Response, current_app, g, request

from core.accounts.devices_rules import Client
from core.kernel.principals import Anonymous, Caller, Member, Person, PreAuthClaims, ScimClient, ServiceKey
from core.kernel.values import to_printable

if TYPE_CHECKING:
    from entrypoints.http.edge.limits import RateLimits
    from entrypoints.http.edge.middleware import RequestRecord
    from entrypoints.http.pages import Page
    from ports import Ports

# What is kept of a User-Agent header; the rest is noise, or an attempt to fill the disk (security.md L-3).
AGENT_LENGTH = 512


_SERVED = "gatehouse"


@dataclass(frozen=True, slots=True)
class AppContext:
    """What the application was made with: the same for every request."""

    ports: "Ports"
    limits: "RateLimits"
    base_url: str  # the address that links to us begin with
    origin: str  # of our own pages
    acceptance_page: str  # where the link of an invitation leads on to
    metrics_token: str | None
    billing_secrets: Sequence[str] = field(repr=False)
    scim_string_status: bool  # of errors, which strict clients of SCIM expect (decisions, point 121)
    exposition: Callable[[], bytes]
    exposition_type: str
    description: bytes  # of the interface, as JSON


def bind_context(app: Quart, served: AppContext) -> None:
    """Let the views of this application find it."""
    app.extensions[_SERVED] = served


def app_context(app: Quart = current_app) -> AppContext:
    return cast("AppContext", app.extensions[_SERVED])


def ports() -> "Ports":
    return app_context().ports


def request_record() -> "RequestRecord":
    """What the outer layer knows, and will log, of this exchange."""
    return cast("RequestRecord", request.scope["request_record"])  # type: ignore[typeddict-item]


def caller() -> Caller:
    """Whoever the access decorator found out is calling."""
    return cast("Caller", g.caller)


def signed_in() -> Person:
    """The caller of a route that only signed-in people reach."""
    found = caller()
    assert isinstance(found, Person), "only behind a decorator that lets people in"
    return found


def acting_member() -> Member:
    """The caller of a route of an organization."""
    found = caller()
    assert isinstance(found, Member), "only behind @member"
    return found


def acting_key() -> ServiceKey:
    """The caller of a route of the service interface."""
    found = caller()
    assert isinstance(found, ServiceKey), "only behind @service_key"
    return found


def acting_directory() -> ScimClient:
    """The caller of a route of SCIM."""
    found = caller()
    assert isinstance(found, ScimClient), "only behind @scim_client"
    return found


def client(token: str | None = None, *, name: str | None = None) -> Client:
    """What a sign-in over the interface shows of its device (decisions, points 42 and 78)."""
    return Client(device_id=request.headers.get("X-Device-Id"), token=token, name=name)


def pre_auth() -> PreAuthClaims:
    """The sign-in that a route behind @pre_auth continues."""
    return cast("PreAuthClaims", g.pre_auth)


def agent() -> str | None:
    value = request.headers.get("User-Agent")
    # Headers may hold the controls of a terminal, which must not come out of a log or an answer again (L-3, N-5).
    return None if value is None else to_printable(value[:AGENT_LENGTH])


def anonymous() -> Anonymous:
    return Anonymous(address=request_record().address, agent=agent())


def no_content() -> Response:
    """204: done, and nothing to say. Quart reads a Response that was given no body at all by means of asyncio, which does not run here."""
    response = Response(b"", 204)
    # Neither belongs to an answer that cannot have a body (RFC 9110, section 8.6).
    del response.headers["Content-Type"], response.headers["Content-Length"]
    return response


def page_response(page: "Page") -> Response:
    return Response(page.body, page.status, dict(page.headers))
