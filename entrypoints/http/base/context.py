"""The context in which a view runs: the application's ports and settings, and the caller."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from quart import Quart, Request, Response, current_app, g, has_request_context, request

from core.accounts.model.devices import PresentedDevice
from core.accounts.model.profiles import OwnProfile
from core.accounts.relying_party import StoredId
from core.federation.connections.routing import KnownRoutes
from core.kernel import callers, causes
from core.kernel.access import NeedsPerson
from core.kernel.claims import PreAuthClaims
from core.kernel.errors import refuse
from core.kernel.values import to_printable

if TYPE_CHECKING:
    from entrypoints.http.base.request_record import RequestRecord
    from entrypoints.http.edge.directory.limits import DirectoryTurns, LargeBodies
    from entrypoints.http.edge.directory.log import DirectoryCall, DirectoryLog
    from entrypoints.http.edge.rate_limits import RateLimits
    from ports import Ports

# How many characters of a User-Agent header are stored. Without a limit, clients could fill the
# disk (security L-3).
AGENT_LENGTH = 512


_EXTENSION = "gatehouse"

# Every access through a Quart proxy looks up the object again, so functions that run on every
# request look it up once.
_current_app: Callable[[], Quart] = cast("Any", current_app)._get_current_object
_current_request: Callable[[], Request] = cast("Any", request)._get_current_object
_current_g: Callable[[], Any] = cast("Any", g)._get_current_object


@dataclass(frozen=True, slots=True)
class AppContext:
    """The application's ports and settings, the same for every request."""

    ports: "Ports"
    limits: "RateLimits"
    large_bodies: "LargeBodies"
    directory_turns: "DirectoryTurns"
    directory_log: "DirectoryLog"
    base_url: str  # the start of every link to this service
    origin: str  # our own pages' origin
    acceptance_page: str  # the URL to which an invitation's link redirects
    metrics_token: str | None
    billing_secrets: Sequence[str] = field(repr=False)
    scim_string_status: bool  # send a SCIM error's status as a string
    exposition: Callable[[], bytes]
    exposition_type: str
    describe: Callable[[], bytes]  # returns the API description as JSON; slow at first
    stored_rp_id: StoredId = field(default_factory=StoredId)
    known_routes: KnownRoutes = field(default_factory=KnownRoutes)


def bind_context(app: Quart, context: AppContext) -> None:
    """Make the context available to the application's views."""
    app.extensions[_EXTENSION] = context


def app_context(app: Quart | None = None) -> AppContext:
    """Return the application's context, by default the current application's."""
    return cast("AppContext", (app or _current_app()).extensions[_EXTENSION])


def form_owner() -> str:
    """Return the sealed owner for this page's forms, or an empty text if they do not come back after their session."""
    return _current_g().get("form_owner", "") if has_request_context() else ""


def ports() -> "Ports":
    """Return the application's ports."""
    return app_context().ports


def current_request() -> Request:
    """Return the current request itself. `quart.request` is a proxy for it."""
    return _current_request()


def request_record() -> "RequestRecord":
    """Return the current request's record, which the middleware logs when the request ends."""
    return cast("RequestRecord", _current_request().scope["request_record"])  # type: ignore[typeddict-item]


def requested_path() -> str:
    """Return the request's path with its query."""
    sent = _current_request()
    query = sent.query_string.decode("ascii", "replace")
    return f"{sent.path}?{query}" if query else sent.path


def caller() -> causes.Caller:
    """Return the caller that the access decorator identified."""
    return cast("causes.Caller", _current_g().caller)


def signed_in() -> callers.Person:
    """Return the caller on a route for signed-in users."""
    user = caller()
    assert isinstance(user, callers.Person), "only behind a decorator for users"
    return user


def own_profile() -> OwnProfile:
    """Return the caller's profile. Only for routes behind @person_with_profile."""
    return cast("OwnProfile", g.own_profile)


def acting() -> callers.OrganizationCaller:
    """Return the caller on a route for an organization's members and service accounts."""
    client = caller()
    assert isinstance(client, callers.OrganizationCaller), "only behind @member"
    return client


def acting_member() -> callers.Member:
    """Return the caller on a route for an organization's members who use their account or session. Raises: NeedsPerson."""
    client = acting()
    return client if isinstance(client, callers.Member) else refuse(NeedsPerson)


def acting_on_platform() -> callers.PlatformCaller:
    """Return the caller on a route for platform owners and the platform's service accounts."""
    client = caller()
    assert isinstance(client, callers.PlatformCaller), "only behind @platform_owner"
    return client


def acting_key() -> callers.ServiceKey:
    """Return the caller on a route for API keys."""
    user = caller()
    assert isinstance(user, callers.ServiceKey), "only behind @service_key"
    return user


def acting_directory() -> callers.ScimClient:
    """Return the caller on a SCIM route."""
    user = caller()
    assert isinstance(user, callers.ScimClient), "only behind @scim_client"
    return user


def setup_reader() -> callers.SetupLinkCaller:
    """Return the caller on a page that a set-up link opens."""
    user = caller()
    assert isinstance(user, callers.SetupLinkCaller), "only behind @setup_link"
    return user


def directory_call() -> "DirectoryCall | None":
    """Return the data that is logged for the current SCIM request, or None without a known SCIM token."""
    return cast("DirectoryCall | None", _current_g().get("directory_call"))


def client(token: str | None = None, *, name: str | None = None) -> PresentedDevice:
    """Return the device information that an API client sends with a sign-in."""
    return PresentedDevice(device_id=request.headers.get("X-Device-Id"), token=token, name=name)


def pre_auth() -> PreAuthClaims:
    """Return the claims in the pre-auth token. Only for routes behind @pre_auth."""
    return cast("PreAuthClaims", g.pre_auth)


def agent() -> str | None:
    """Return the User-Agent header, cut to AGENT_LENGTH and printable, or None."""
    value = _current_request().headers.get("User-Agent")
    # Headers can contain terminal control characters, which must not reach a log or a response
    # (security L-3, N-5).
    return None if value is None else to_printable(value[:AGENT_LENGTH])


def anonymous() -> causes.Anonymous:
    """Return a caller without credentials."""
    record = request_record()
    return causes.Anonymous(address=record.address, agent=agent(), request_id=record.request_id)


def no_content() -> Response:
    """Return a 204 response. Its body is empty bytes: Quart would read a missing body with asyncio, which does not run here."""
    response = Response(b"", 204)
    # A response without a body has neither header (RFC 9110 section 8.6).
    del response.headers["Content-Type"], response.headers["Content-Length"]
    return response
