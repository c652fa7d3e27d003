"""The flow that a page belongs to, stored or in the address, and pages that ask for the email address first.

A sign-in page has two addresses: below `/app` for a sign-in to our own pages, with the path in `next`, and below its flow's path. This
module and `to_sign_in` alone know `next`.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import wraps
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode
from uuid import UUID

from quart import Blueprint, Response, request

from core.applications.model.services import Service
from core.authentication.flow import flows
from core.authentication.flow.model import Flow, FlowEnded, FlowTarget, new_flow
from core.federation import sign_in as sign_in_flow
from core.federation import targets
from core.federation.connections import routing
from core.federation.destination import Destination
from core.federation.oauth.model.authorization import AUTHORIZE_PATH
from core.federation.sign_in import SignInOptions
from core.kernel import connections, errors, page_paths, uris, values
from core.kernel.page_paths import HOME_PATH
from core.kernel.proofs import Strength
from core.kernel.sign_in_policy.steps import Step
from entrypoints.http import kit
from entrypoints.http.pages.visitors import visitor_with_mfa

FLOW_PATH: Final = f"{HOME_PATH}/flow/<flow_id>"
Button = tuple[str, Callable[[SignInOptions], bool]]  # its label, and whether it is there
OTHER_WAYS: Final[dict[str, Button]] = {}  # the sign-in page's buttons that send the email address elsewhere, by the step's path
View = Callable[..., Awaitable[Response]]


def flow_route(routes: Blueprint, path: str, method: str, button: Button | None = None) -> Callable[[View], View]:
    """Register a sign-in page at its address below `/app` and below its flow.

    With `button`, the sign-in page has a button that posts its form there.
    """
    if button is not None:
        OTHER_WAYS[path] = button

    def decorate(view: View) -> View:
        for prefix, suffix in ((HOME_PATH, ""), (FLOW_PATH, "_in_flow")):
            routes.add_url_rule(prefix + path, endpoint=view.__name__ + suffix, view_func=view, methods=[method])
        return view

    return decorate


def in_flow(view: Callable[[Flow], Awaitable[Response]]) -> View:
    """Pass the flow in the address to the view. It is open, and belongs to this browser; else the response is the page that goes on."""

    @wraps(view)
    async def with_flow(flow_id: str | None = None) -> Response:
        if request.method == "POST":
            await kit.read_form()  # refuse what is no form, whatever the flow
        try:
            flow = await _page_flow() if flow_id is None else await open_flow(flow_id)
            if request.method == "POST":
                remember_way_back(flow, "" if flow.is_stored else "/sign-in")
            return await view(flow)
        except FlowEnded:
            return await ended_page(flow_id)

    return with_flow


async def open_flow(flow_id: str) -> Flow:
    """Return this browser's open flow with this id. Raises: FlowEnded."""
    return await flows.load_open(kit.ports(), values.parse_id(flow_id) or errors.refuse(FlowEnded), kit.cookies.DEVICE.read())


async def _page_flow() -> Flow:
    fields = await kit.read_form() if request.method == "POST" else request.args
    return page_flow(kit.safe_next(fields.get("next") or HOME_PATH))


def page_flow(path: str) -> Flow:
    """Return a flow to the page at this path, for which nothing is stored yet."""
    return new_flow(kit.ports().clock.now(), FlowTarget.PAGE, path, values.digest(kit.cookies.browser_id()))


async def ended_page(flow_id: str | None) -> Response:
    """Return the page for a flow that has ended. It reveals nothing about another browser's flow."""
    known_id = values.parse_id(flow_id or "")
    service = None if known_id is None else await targets.find_application(kit.ports(), known_id, kit.cookies.DEVICE.read())
    start = None if service is None else _start_of(service)
    page = kit.render(
        "authentication/flow_ended.html",
        is_signed_in=await visitor_with_mfa() is not None,
        has_cookies=kit.cookies.DEVICE.read() is not None,
        start=start or HOME_PATH,
        service=service.known_name if service and start else None,
    )
    return kit.page_response(page)


def _start_of(service: Service) -> str | None:
    """Return where an application's users start a sign-in, if it has said so."""
    if service.initiate_login_uri is None:
        return service.access.launch_url
    return uris.add_parameters(service.initiate_login_uri, {"iss": kit.app_context().base_url})


def path_of(flow: Flow, step: str = "") -> str:
    """Return the path to a flow's step, or to the flow itself, which leads to its present step."""
    if flow.is_stored:
        return _prefix_of(flow) + step
    return kit.with_next(HOME_PATH + step, flow.request) if step else flow.request


def step_path(step: Step) -> str:
    """Return what `path_of` adds for a step. The flow itself leads to ENROLL's page."""
    return "" if step is Step.ENROLL else f"/{step.value}"


def _prefix_of(flow: Flow) -> str:
    """Return a stored flow's path. A step's path begins with it."""
    return f"{HOME_PATH}/flow/{flow.id}"


def remember_way_back(flow: Flow, step: str) -> None:
    """Let the page of an error, if an error follows, lead to this step in the flow."""
    kit.request_record().way_back = ("Back to the sign-in", path_of(flow, step))


def provider_path(flow: Flow, provider: connections.ConnectionSlug) -> str:
    """Return the path that starts a flow's sign-in at this platform identity provider."""
    return f"/auth/{provider}?{urlencode(_start_fields(flow))}"


def connection_path(flow: Flow, connection_id: UUID, **hints: str | None) -> str:
    """Return the path that starts a flow's sign-in at this connection. The hints go on to its identity provider."""
    return page_paths.connection_start_path(connection_id, **_start_fields(flow), **hints)


def _start_fields(flow: Flow) -> dict[str, str]:
    return {"flow": str(flow.id)} if flow.is_stored else {"next": flow.request}


class SignInUnseen(errors.Forbidden):
    """Open this page in a browser tab. A sign-in does not start in a frame, or in a page that is loaded ahead."""


def require_tab(*, or_frame: bool = False) -> None:
    """Check that the user sees the page that this request asks for. Otherwise it must begin no sign-in.

    With `or_frame`, the page can also be in a frame.
    """
    places = ("document", "iframe", "frame") if or_frame else ("document",)
    if "Sec-Purpose" in request.headers or request.headers.get("Sec-Fetch-Dest", "document") not in places:
        raise SignInUnseen


def leads_to_request(flow: Flow) -> bool:
    """Return whether a page's path belongs to a request, which begins its own flow, or to another flow."""
    path = flow.request.partition("?")[0]
    return path in (AUTHORIZE_PATH, page_paths.SIGN_IN_PATH) or path.startswith(f"{HOME_PATH}/flow/") or path.endswith("/saml/login")


def address_to_store(flow: Flow) -> str | None:
    """Return the address for an email's link, or None if it is the start page.

    Any browser can open it. It names the request's flow, so that the flow's browser continues there.
    """
    if flow.target is FlowTarget.PAGE:
        return None if flow.request == HOME_PATH else flow.request
    address = targets.address(flow)
    return path_of(flow) if address is None else uris.add_parameters(address, {"flow": str(flow.id)})


async def flow_of_link(address: str, *, is_own: bool) -> Flow:
    """Return this browser's flow that the address in an email's link names, or a new flow that continues there.

    If the flow has ended, it continues at the page that says so, because the application must not get a second answer.
    The flow is known for an hour after its end. `is_own` says that this is its browser, even if the flow is unknown.
    """
    path, _, query = address.partition("?")
    flow_id = values.parse_id(path.removeprefix(f"{HOME_PATH}/flow/")) or values.parse_id(dict(parse_qsl(query)).get("flow", ""))
    if flow_id is None:
        return page_flow(address)
    flow = await flows.load(kit.ports(), flow_id, kit.cookies.DEVICE.read())
    if flow is None or flow.target not in targets.TARGETS:
        return page_flow(f"{HOME_PATH}/flow/{flow_id}" if is_own else address)
    return flow if flow.is_open(kit.ports().clock.now()) else page_flow(path_of(flow))


def links(flow: Flow) -> dict[str, Any]:
    """Return the values for a flow's page: the prefix for its forms, where it continues, and links to the pages around the sign-in."""
    return {
        "flow": _prefix_of(flow) if flow.is_stored else HOME_PATH,
        "next": path_of(flow),
        "sign_in": path_of(flow, "/sign-in"),
        "sign_up": path_of(flow, "/sign-up"),
        "forgot_password": path_of(flow, "/forgot-password"),
    }


async def load_options(flow: Flow, destination: Destination | None = None) -> SignInOptions:
    """Return what a flow's sign-in page offers for this destination, which is loaded if it is missing. Raises: FlowEnded."""
    here = kit.app_context()
    options = await sign_in_flow.load_options(here.ports, here.known_routes, flow, here.base_url, destination)
    await kit.load_images(connections.PLATFORM_CONNECTIONS[provider][0] for provider in [*options.providers, *options.folded_providers])
    return options


async def page_values(flow: Flow) -> dict[str, Any]:
    """Return the values for a flow's sign-in and sign-up pages. Raises: FlowEnded."""
    return values_of(await load_options(flow), flow)


def values_of(options: SignInOptions, flow: Flow) -> dict[str, Any]:
    """Return the values that sign-in and sign-up pages have for these options."""
    service = options.destination.service
    return {
        **links(flow),
        "providers": _connections(options.destination, flow) | _providers(options.providers, flow),
        "accepts_password": options.password,
        "password_at_sign_up": options.password_at_sign_up,
        "accepts_passkey": options.passkey,
        "is_folded": options.is_folded,
        "address_first": False,
        "step_up": None,
        "requires_passkey": options.destination.required is Strength.PHISHING_RESISTANT,
        "requires_second": options.destination.required is Strength.TWO,
        "folded_providers": _providers(options.folded_providers, flow),
        "service": service.known_name if service else None,
        "service_logo": kit.image_path(service.logo_url) if service else None,
        "organization_name": options.design.organization_name if options.design and service and not service.is_external else None,
        "other_ways": [(label, path) for path, (label, is_there) in OTHER_WAYS.items() if is_there(options)],
        "needs_fresh_sign_in": flow.wants_fresh,
        "hides_providers": options.hides_providers,
        "offers_sign_up": options.destination.offers_sign_up,
        "design": options.design,
    }


def _connections(destination: Destination, flow: Flow) -> dict[str, tuple[str, str]]:
    """Return the name of every connection that the request asks for, and the path that starts the sign-in there, by slug."""
    if flow.connection_link is not None:  # the user signs in to the account that a connection waits for
        return {}
    hints = {"login_hint": destination.login_hint, "domain_hint": destination.domain_hint}
    return {each.slug: (each.name, connection_path(flow, each.id, **hints)) for each in destination.connections}


def _providers(slugs: Iterable[connections.ConnectionSlug], flow: Flow) -> dict[str, tuple[str, str]]:
    """Return every identity provider's name, and the path that starts the sign-in there."""
    return {slug: (kit.ports().policy.provider_names[slug], provider_path(flow, slug)) for slug in slugs}


# The button with which a page was sent that asks for the address. Other pages have no such field.
STEP: Final = "step"
ADDRESS: Final = "address"
OWN_WAYS: Final = "password"  # the user wants to use a password, also where the domain leads to a connection


async def asks_address_first() -> bool:
    """Return whether sign-in pages ask for the address alone."""
    return await routing.asks_address_first(kit.ports(), kit.app_context().known_routes)


async def find_connection(flow: Flow, form: Mapping[str, str], email: values.Email) -> connections.ConnectionRef | None:
    """Return the connection to which the address in a form leads, or None, also if the user wants another way, or links an account."""
    if form.get(STEP) == OWN_WAYS or flow.connection_link is not None or not await asks_address_first():
        return None
    return await routing.find_connection(kit.ports(), flow, email.domain)


async def lead_to_connection(flow: Flow, form: Mapping[str, str], email: values.Email) -> Response | None:
    """Return the redirect to the connection to which the address in a form leads, or None."""
    connection = await find_connection(flow, form, email)
    return None if connection is None else kit.redirect(connection_path(flow, connection.id, login_hint=email))
