"""The Quart application: its blueprints, its edge, and the checks that it must pass before it serves."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from ipaddress import IPv4Network, IPv6Network
from typing import Any
from urllib.parse import urlsplit

from quart import request
from quart.wrappers.base import BaseRequestWebsocket
from quart_trio import QuartTrio
from werkzeug.exceptions import HTTPException
from werkzeug.exceptions import NotFound as NoSuchRoute
from werkzeug.routing import MapAdapter

from core.kernel.values import is_printable
from entrypoints.http.api import operations, privacy
from entrypoints.http.api.accounts import accounts, devices, mfa, platform_users
from entrypoints.http.api.applications import analytics, api_keys, end_users, plans, service_info, service_users, services
from entrypoints.http.api.authentication import identities, impersonation, oauth_credentials, sessions
from entrypoints.http.api.billing import checkout, provider_events, subscriptions
from entrypoints.http.api.eventing import audit, siem, webhooks
from entrypoints.http.api.federation.oauth import authorization as oauth
from entrypoints.http.api.federation.oauth import device_flow
from entrypoints.http.api.federation.saml import configuration as saml
from entrypoints.http.api.federation.saml import logout as saml_logout
from entrypoints.http.api.federation.saml import sign_on as saml_sign_on
from entrypoints.http.api.federation.upstream import social
from entrypoints.http.api.provisioning import discovery as scim_discovery
from entrypoints.http.api.provisioning import groups as scim_groups
from entrypoints.http.api.provisioning import tokens as scim_tokens
from entrypoints.http.api.provisioning import users as scim_users
from entrypoints.http.api.tenancy import branding, domains, governance, home_realm, invitations, mail_server, members, organizations
from entrypoints.http.edge.access import check_every_route
from entrypoints.http.edge.bodies import StrictRequest, body_limit
from entrypoints.http.edge.connection import WholeBodyConnection
from entrypoints.http.edge.context import Served, exchange, serve
from entrypoints.http.edge.error_body import SCIM_JSON, oauth_error_body, oauth_error_of, scim_error_body, speaks_scim
from entrypoints.http.edge.errors import error_page, handle_errors, prefers_page
from entrypoints.http.edge.limits import RateLimits
from entrypoints.http.edge.middleware import Exchange, Headers, Outer, Refused, json_error
from entrypoints.http.edge.openapi import changes_state, describe_interface, interface_description, is_oauth
from entrypoints.http.pages import account, sign_in
from ports import Ports


class Application(QuartTrio):
    """Quart's application, which is reached through the outer layer only."""

    outer: Outer
    description: bytes  # of the interface, as JSON

    async def asgi_app(self, scope: Any, receive: Any, send: Any) -> None:
        await self.outer(scope, receive, send)

    def create_url_adapter(self, request: BaseRequestWebsocket | None) -> MapAdapter | None:
        """Look routes up by path and method alone; the framework's own takes the Host header apart for each request as well."""
        if request is None:
            return None
        return MapAdapter(self.url_map, "localhost", "/", "", request.scheme, request.path, request.method)


@dataclass(frozen=True, slots=True)
class Edge:
    """What the HTTP edge is told by the operator's settings."""

    base_url: str
    frontend_url: str | None
    trusted_proxies: Sequence[IPv4Network | IPv6Network]
    rate_limit_factor: float | None  # None: off
    client_rate: float  # exchanges a second that an application has which shows its client secret
    metrics_token: str | None
    scim_string_status: bool = False  # of errors of SCIM (decisions, point 121)
    billing_secrets: Sequence[str] = ()  # with which the payment provider signs its events


def create_app(
    ports: Ports, edge: Edge, *, observe: Callable[[Exchange], None], exposition: Callable[[], bytes], exposition_type: str
) -> Application:
    """The application. Raises ValueError where a route does not say who may call it, or the interface description is not sound."""
    app = routed()
    equip(app, ports, edge, observe=observe, exposition=exposition, exposition_type=exposition_type)
    return app


def equip(
    app: Application,
    ports: Ports,
    edge: Edge,
    *,
    observe: Callable[[Exchange], None],
    exposition: Callable[[], bytes],
    exposition_type: str,
) -> None:
    """Give the routes what they are served with from now on, in place of what they had."""
    base = urlsplit(edge.base_url)
    served = Served(
        ports=ports,
        limits=RateLimits(edge.rate_limit_factor, edge.client_rate),
        base_url=edge.base_url,
        origin=origin(edge.base_url),
        acceptance_page=acceptance_page(edge.base_url, edge.frontend_url),
        metrics_token=edge.metrics_token,
        billing_secrets=edge.billing_secrets,
        scim_string_status=edge.scim_string_status,
        exposition=exposition,
        exposition_type=exposition_type,
        description=app.description,
    )
    serve(app, served)
    routes = RouteTable(app)
    app.outer = Outer(
        super(Application, app).asgi_app,  # type: ignore[arg-type]  # Hypercorn's names for the same three
        routes=routes,
        observe=observe,
        body_limit=body_limit,
        trusted_proxies=edge.trusted_proxies,
        cors_origin=origin(edge.frontend_url) if edge.frontend_url else None,
        render_error=partial(_render_error, routes, edge.scim_string_status),
        https=base.scheme == "https",
    )


def origin(url: str) -> str:
    """Scheme and host of an address, as browsers say it."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def acceptance_page(base_url: str, frontend_url: str | None) -> str:
    """The page that shows an invitation: the frontend's, at the path of the mail's link, or our own (decisions, point 196).

    A frontend at the very address of the service has that path from us, and would be sent in a circle.
    """
    if frontend_url is None or _place(frontend_url) == _place(base_url):
        return f"{base_url}/app/invitations/accept"
    return f"{frontend_url}/invitations/accept"


def _place(url: str) -> tuple[str, str | None, int | None, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme), parts.path


def describe() -> dict[str, Any]:
    """The interface description, without a running service."""
    description: dict[str, Any] = json.loads(routed().description)
    return description


def routed() -> Application:
    """All routes and their description, which are the same for every installation, and nothing yet that serves them."""
    app = Application("gatehouse", static_folder=None)
    app.request_class = StrictRequest
    app.asgi_http_class = WholeBodyConnection
    app.url_map.converters["provider"] = social.ProviderConverter
    app.url_map.merge_slashes = False  # a doubled slash is an unknown address (decisions, point 7)
    # The interface description lists them in this order.
    for area in (
        accounts, sessions, device_flow, mfa, devices, identities, privacy,
        organizations, members, invitations, services, plans, checkout, api_keys, end_users, analytics, audit,
        webhooks, mail_server, branding, domains, oauth_credentials, saml, home_realm, siem,
        service_users, subscriptions, service_info,
        scim_tokens, scim_users, scim_groups, scim_discovery,
        oauth, social,
        governance, platform_users, impersonation, sign_in, account, saml_sign_on, saml_logout, provider_events, operations,
    ):  # fmt: skip
        app.register_blueprint(area.routes)
    app.before_request(_look_at_address)
    handle_errors(app)
    describe_interface(app)
    app.json.sort_keys = False  # type: ignore[attr-defined]
    check_every_route(app)
    app.description = json.dumps(interface_description(app)).encode()
    return app


class RouteTable:
    """What the outer layer asks about routes."""

    def __init__(self, app: QuartTrio) -> None:
        self._views = app.view_functions
        self._match = app.url_map.bind("localhost")
        self.methods = lru_cache(maxsize=1024)(self._methods)
        self.view = lru_cache(maxsize=1024)(self._view)

    def _methods(self, path: str) -> frozenset[str] | None:
        return None if path.startswith("//") else frozenset(self._match.allowed_methods(path)) or None

    def _view(self, path: str, method: str) -> Callable[..., Any] | None:
        if path.startswith("//"):
            return None
        try:
            endpoint, _ = self._match.match(path, method)
        except HTTPException:
            return None
        return self._views[endpoint]

    def changes_state(self, path: str) -> bool:
        view = self.view(path, "GET")
        return view is not None and changes_state(view)


def _render_error(
    routes: RouteTable, scim_string_status: bool, refused: Refused, exchange: Exchange, accept: str | None
) -> tuple[Headers, bytes]:
    """What the outer layer refuses looks as if the route had refused it."""
    view = routes.view(exchange.path, exchange.method)
    if is_oauth(view):
        return [(b"content-type", b"application/json")], oauth_error_body(refused.sentence, refused.code, oauth_error_of(refused.status))
    if speaks_scim(exchange.path):
        return [(b"content-type", SCIM_JSON.encode())], scim_error_body(refused.status, refused.sentence, as_text=scim_string_status)
    if not prefers_page(view, exchange.path, accept):
        return json_error(refused, exchange, accept)
    page = error_page(refused.status, refused.sentence, exchange.request_id)
    return [(name.lower().encode(), value.encode()) for name, value in page.headers.items()], page.body.encode()


async def _look_at_address() -> None:
    """Tell the outer layer the route's template, and refuse what no address of ours can hold (security.md N-5)."""
    # The framework would take away slashes in front, and find a route.
    if request.scope["path"].startswith("//") or not is_printable(request.path):
        raise NoSuchRoute
    if request.url_rule is not None:
        exchange().route = request.url_rule.rule
