"""The Quart application: its blueprints, its edge, and the checks at start."""

import json
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from importlib import import_module
from ipaddress import IPv4Network, IPv6Network
from pkgutil import walk_packages
from types import ModuleType
from typing import Any, Final
from urllib.parse import urlsplit

from core.kernel import uris
from core.kernel.policy import SupportContact
from entrypoints.http import kit, pages
from entrypoints.http.api import operations
from entrypoints.http.base.context import AppContext, bind_context
from entrypoints.http.edge import bodies, dispatch, error_body, errors
from entrypoints.http.edge.directory import limits
from entrypoints.http.edge.directory.log import DirectoryLog
from entrypoints.http.edge.middleware import EdgeMiddleware, EdgeOptions, Headers, json_error
from entrypoints.http.edge.openapi.description import describe_interface, interface_description
from entrypoints.http.edge.protocol.connection import LazyBodyConnection
from entrypoints.http.edge.protocol.request_checks import DirectResponse
from entrypoints.http.edge.rate_limits import RateLimits
from entrypoints.http.pages.authentication import social
from ports import Ports

# The endpoint modules below `entrypoints.http`, with their texts in the API description.
_ENDPOINTS: Final = (
    ("api.accounts.accounts", "Registration, email verification, passwords and the profile."),
    ("api.accounts.pictures", "Uploaded images: the picture of the user, and the addresses of all images."),
    ("api.authentication.sessions", "Sign in with a password, a passkey or an email, refresh, sign out, and select an organization."),
    ("api.authentication.reauthentication", "Confirm in a session that it's you."),
    ("api.accounts.passkeys", "Passkeys: add, list, rename and delete them."),
    ("api.accounts.passkey_origins", "Passkeys: the pages and native applications that may use them."),
    ("api.accounts.mfa", "The second factor: enrollment, backup codes, and its removal."),
    ("api.accounts.devices", "The devices of the signed-in user."),
    ("api.authentication.personal_tokens", "Personal access tokens, with which programs act as a user."),
    ("api.authentication.identities", "Accounts at identity providers that are linked to the user's account."),
    ("api.privacy", "Data export and anonymization."),
    ("api.account_logs", "The logs of second factors and of privacy, for the user and platform owners."),
    ("api.tenancy.organizations", "Organizations of the signed-in user."),
    ("api.tenancy.groups", "Groups of an organization, their members, and the roles that they give."),
    ("api.tenancy.members", "Members of an organization, their roles, and the transfer of ownership."),
    ("api.tenancy.roles", "Roles of an organization, and the catalog of capabilities."),
    ("api.tenancy.invitations", "Invitations to join an organization."),
    ("api.tenancy.branding", "Name, logo and color of an organization."),
    (
        "api.tenancy.domains",
        "The domains of an organization: their verification in the DNS, and the identity providers that sign in their users.",
    ),
    ("api.setup.links", "Set-up links, with which the IT department of a customer prepares integrations."),
    ("api.tenancy.mail_server", "The mail server of an organization."),
    ("api.tenancy.attributes", "The attributes of users that an organization declares, and their values."),
    ("api.applications.attributes", "The attributes of end users, and of the signed-in user."),
    ("api.tenancy.sign_in_policy", "How the users of an organization and of its applications sign in."),
    ("api.tenancy.platform_sign_in_policy", "How platform owners sign in."),
    ("api.eventing.audit", "The audit log of an organization, and the platform's log."),
    ("api.authentication.sign_in_log", "The sign-in log of an organization, and of the platform."),
    ("api.applications.analytics", "The overview of an organization, and sign-ins of its services."),
    ("api.applications.figures", "Figures for charts, of an organization and of the platform."),
    ("api.applications.services", "Applications of an organization. The API calls them services."),
    ("api.programs.registration_tokens", "Registration tokens, with which clients register themselves as applications."),
    ("api.federation.oauth.consents", "Consents of the signed-in user to applications, and grants to external clients of API resources."),
    ("api.applications.service_access", "Who may use a service: its policy, assigned users, and the applications of the signed-in user."),
    ("api.applications.authorization", "Permissions that a service declares, and the roles that it makes of them."),
    ("api.applications.role_assignments", "Users and groups that have roles of a service."),
    ("api.applications.access_reasons", "What a user may do, and why."),
    ("api.applications.claims", "The claims in the tokens of a service, and their sources."),
    ("api.applications.sign_in_preview", "Test sign-in: what a service would receive for the signed-in user."),
    ("api.applications.plans", "Plans that the users of a service can subscribe to."),
    ("api.applications.api_keys", "API keys of a service."),
    ("api.programs.api_resources", "API resources: APIs of an organization that applications get access tokens for."),
    ("api.programs.client_policies", "External clients of API resources: programs that no organization registered, such as assistants."),
    ("api.programs.credentials", "Credentials of API resources, with which an API asks about the tokens that it receives."),
    (
        "api.programs.service_accounts",
        "Service accounts: programs that call this API for an organization, their credentials, and their API resource scopes.",
    ),
    ("api.applications.end_users", "Users of an organization's services, and their sessions."),
    ("api.authentication.oauth_credentials", "A service's own OAuth credentials at the identity providers."),
    ("api.federation.connections.connections", "Connections: an organization's own identity providers."),
    ("api.federation.saml.configuration", "SAML configuration, certificate and metadata of a service, and their check."),
    ("api.federation.connections.people", "Connections: the users that they know, and the groups that they give."),
    ("api.federation.connections.checks", "Connections: the check of an identity provider of the organization, and our keys there."),
    ("api.federation.connections.metadata", "Connections: the metadata of SAML identity providers, and ours for them."),
    ("api.federation.connections.logout", "Sign-outs that identity providers of organizations report."),
    ("pages.federation.oauth", "OAuth 2.0: the authorization endpoint, for browsers."),
    ("api.federation.oauth.pushed_requests", "OAuth 2.0: pushed authorization requests."),
    ("api.federation.oauth.client_registration", "OAuth 2.0: clients that register themselves."),
    ("api.federation.oauth.token_endpoint", "OAuth 2.0: tokens and revocation."),
    ("pages.federation.end_session", "OpenID Connect: the logout endpoint, for browsers."),
    ("api.federation.oauth.userinfo", "OpenID Connect: the claims about the user of an access token."),
    (
        "api.federation.oauth.discovery",
        "The metadata of the provider, for OpenID Connect and OAuth, and of this API as a protected resource.",
    ),
    ("api.federation.oauth.device_flow", "The OAuth device flow for programs without a browser."),
    ("pages.federation.device_flow", "The page that approves a device."),
    ("pages.authentication.social", "Sign-in through identity providers."),
    ("pages.federation.saml.sign_on", "SAML sign-on, and the page that continues it."),
    ("pages.federation.saml.logout", "SAML single logout."),
    ("api.applications.service_users", "Service API: the service of the API key, and its users."),
    ("api.applications.service_authorization", "Service API: permissions and roles of the service, and roles of its users."),
    ("api.applications.evaluation", "Questions whether a user has a permission of a service (AuthZEN)."),
    ("api.billing.subscriptions", "Service API: subscriptions of users to plans, and the list for members."),
    ("api.billing.checkout", "Hosted checkout for a plan."),
    ("api.provisioning.blocks", "Users that the organization's directory blocks."),
    ("api.provisioning.tokens", "SCIM tokens of an organization, and its last SCIM requests."),
    ("api.provisioning.users", "SCIM 2.0 users."),
    ("api.provisioning.groups", "SCIM 2.0 groups."),
    ("api.provisioning.discovery", "SCIM 2.0 discovery."),
    ("api.eventing.webhooks", "Outgoing webhooks and their deliveries."),
    ("api.eventing.siem", "Forwarding of the audit log to a SIEM."),
    ("api.tenancy.governance", "Platform owners: organizations, their lifecycle, tiers and limits."),
    ("api.accounts.platform_users", "Platform owners: users, second factors, and platform ownership."),
    ("api.authentication.user_access", "Platform owners: the access of a user, the end of sessions, password resets, and impersonation."),
    ("api.authentication.recovery", "The recovery of accounts that lost their second factor or passkey, in two parts."),
    ("api.programs.platform_service_accounts", "Platform owners: service accounts of the platform, and their credentials."),
    ("api.authentication.connections", "The identity providers of the platform, and their logos."),
    ("api.installation", "Platform owners: health of the installation, and its settings."),
    ("api.billing.provider_events", "Events of the payment provider."),
)
_REFERENCE: Final = re.compile(r" \([^()]*\)(?=\.)")


def _load_pages(others: Collection[ModuleType]) -> list[tuple[ModuleType, str]]:
    """Return the modules with routes, ordered by name, with their texts. Modules in `others` are left out."""
    modules = [import_module(found.name) for found in walk_packages(pages.__path__, f"{pages.__name__}.")]
    return [(module, _text(module)) for module in modules if hasattr(module, "routes") and module not in others]


def _text(module: ModuleType) -> str:
    return _REFERENCE.sub("", (module.__doc__ or "").partition("\n")[0])


_MODULES: Final = [(import_module(f"entrypoints.http.{name}"), text) for name, text in _ENDPOINTS]
# The API description lists the areas in this order.
BLUEPRINTS: Final = (
    *_MODULES,
    *_load_pages([operations, *(module for module, _ in _MODULES)]),
    (operations, "Health, metrics, signing keys, and this description."),
)


class Application(dispatch.LeanQuart):
    """Quart's application behind the edge middleware."""

    middleware: EdgeMiddleware

    @cached_property
    def description(self) -> bytes:
        """The API description as JSON. It is built on first use, because that takes longer than building the routes."""
        return json.dumps(interface_description(self)).encode()

    @cached_property
    def route_table(self) -> dispatch.RouteTable:
        """The application's routes. They do not change after it is first configured."""
        return dispatch.RouteTable(self)

    async def asgi_app(self, scope: Any, receive: Any, send: Any) -> None:
        await self.middleware(scope, receive, send)


@dataclass(frozen=True, slots=True)
class Edge:
    """The operator's settings for the HTTP edge."""

    base_url: str
    frontend_url: str | None
    trusted_proxies: Sequence[IPv4Network | IPv6Network]
    rate_limit_factor: float | None  # None switches the limits off
    client_rate: float  # token requests per second for an application with a client secret
    metrics_token: str | None
    is_behind_proxy: bool = False  # the service listens on a Unix socket or on a socket from systemd
    pool_size: int = 16  # this process's connections to the database
    scim_string_status: bool = False  # send a SCIM error's status as a string
    billing_secrets: Sequence[str] = ()  # the secrets with which the payment provider can sign its events


def configure(
    app: Application,
    ports: Ports,
    edge: Edge,
    *,
    observe: Callable[[kit.RequestRecord], None],
    exposition: Callable[[], bytes],
    exposition_type: str,
) -> None:
    """Bind the routes to these ports and settings, which replace earlier ports and settings."""
    base = urlsplit(edge.base_url)
    context = AppContext(
        ports=ports,
        limits=RateLimits(edge.rate_limit_factor, edge.client_rate),
        large_bodies=limits.LargeBodies(),
        directory_turns=limits.DirectoryTurns(edge.pool_size),
        directory_log=DirectoryLog(ports),
        base_url=edge.base_url,
        origin=uris.origin_of(edge.base_url),
        acceptance_page=acceptance_page(edge.base_url, edge.frontend_url),
        metrics_token=edge.metrics_token,
        billing_secrets=edge.billing_secrets,
        scim_string_status=edge.scim_string_status,
        exposition=exposition,
        exposition_type=exposition_type,
        describe=lambda: app.description,
    )
    bind_context(app, context)
    app.numeric_hosts = dispatch.loopback_hosts(edge.base_url)
    routes = app.route_table
    app.middleware = EdgeMiddleware(
        super(Application, app).asgi_app,  # type: ignore[arg-type]  # Hypercorn has other names for these types
        routes=routes,
        observe=observe,
        options=EdgeOptions(
            body_limit=bodies.body_limit,
            trusted_proxies=edge.trusted_proxies,
            is_behind_proxy=edge.is_behind_proxy,
            cors_origin=uris.origin_of(edge.frontend_url) if edge.frontend_url else None,
            render_error=partial(_render_error, routes, edge.scim_string_status, ports.policy.support),
            # Browsers apply the header to all ports on a host, so it must not name localhost.
            https=base.scheme == "https" and not uris.is_on_loopback(edge.base_url),
        ),
    )


def acceptance_page(base_url: str, frontend_url: str | None) -> str:
    """Return the URL of the page that shows an invitation: the frontend's, or our own.

    If the frontend has the same URL as the service, use our own page. The frontend's path is served
    by us then, and would redirect to itself.
    """
    if frontend_url is None or _location(frontend_url) == _location(base_url):
        return f"{base_url}/app/invitations/accept"
    return f"{frontend_url}/invitations/accept"


def _location(url: str) -> tuple[str, str | None, int | None, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or uris.DEFAULT_PORTS.get(parts.scheme), parts.path


def describe() -> dict[str, Any]:
    """Return the API description without a running service."""
    description: dict[str, Any] = json.loads(build_routes().description)
    return description


def build_routes() -> Application:
    """Return the application with all routes, not yet bound to ports and settings."""
    app = Application("gatehouse", static_folder=None)
    app.request_class = bodies.StrictRequest
    app.asgi_http_class = LazyBodyConnection
    app.url_map.converters["provider"] = social.ProviderConverter
    app.url_map.merge_slashes = False  # a path with a doubled slash is unknown
    for module, _ in BLUEPRINTS:
        app.register_blueprint(module.routes)
    errors.handle_errors(app)
    describe_interface(app, {module.routes.name: description for module, description in BLUEPRINTS})
    app.json.sort_keys = False  # type: ignore[attr-defined]
    app.before_serving(partial(_log_in_background, app))
    app.after_serving(partial(_log_at_once, app))
    dispatch.check_every_route(app)
    dispatch.check_hooks(app)
    return app


async def _log_in_background(app: Application) -> None:
    kit.app_context(app).directory_log.background = app.nursery


async def _log_at_once(app: Application) -> None:
    kit.app_context(app).directory_log.background = None


def _render_error(
    routes: dispatch.RouteTable,
    scim_string_status: bool,
    support: SupportContact | None,
    error: DirectResponse,
    record: kit.RequestRecord,
    accept: str | None,
) -> tuple[Headers, bytes]:
    """Render a middleware error in the route's format: OAuth, SCIM, JSON or a page."""
    view = routes.view(record.path, record.method)
    if kit.docs_of(view).for_oauth:
        return [(b"content-type", b"application/json")], error_body.oauth_error_body(
            error.message, error.code, error_body.oauth_error_of(error.status)
        )
    if error_body.speaks_scim(record.path):
        return [(b"content-type", kit.SCIM_JSON.encode())], error_body.scim_error_body(
            error.status, error.message, as_text=scim_string_status
        )
    if not errors.prefers_page(view, record.path, accept):
        return json_error(error, record, accept)
    page = errors.error_page(error.status, error.message, record.request_id, support)
    return [(name.lower().encode(), value.encode()) for name, value in page.headers.items()], page.body.encode()
