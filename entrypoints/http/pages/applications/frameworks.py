"""The page that connects an application: the quickstarts with the application's values filled in, and whether a user has signed in yet."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from pydantic import Field
from quart import Blueprint, Response

from core.applications import services
from core.applications.model.services import POST_LOGOUT_REDIRECT_URIS, REDIRECT_URIS, Service, ServiceType
from core.kernel import uris
from core.kernel.roles import Capability
from entrypoints.http import kit
from entrypoints.http.base.rendering import quickstarts
from entrypoints.http.base.rendering.guides import HOME
from entrypoints.http.pages.applications import applications
from entrypoints.http.pages.applications.applications import APPLICATION, SERVICE
from entrypoints.http.pages.console import console_page


@dataclass(frozen=True, slots=True)
class Framework:
    """A framework with a quickstart."""

    page: str
    label: str
    types: Collection[ServiceType] = (ServiceType.WEB,)
    fixed_path: bool = False  # the library chooses the redirect URI's path


FRAMEWORKS: Final = (
    Framework("flask", "Flask"),
    Framework("fastapi", "FastAPI"),
    Framework("django", "Django", fixed_path=True),
    Framework("express", "Express", fixed_path=True),
    Framework("nextjs", "Next.js", fixed_path=True),
    Framework("spring-boot", "Spring Boot", fixed_path=True),
    Framework("go", "Go"),
    Framework("php", "PHP"),
    Framework("asp-net-core", "ASP.NET Core"),
    Framework("single-page-application", "JavaScript in the browser", (ServiceType.SPA,)),
    Framework("android", "Android", (ServiceType.MOBILE,)),
    Framework("ios", "iOS", (ServiceType.MOBILE,)),
)


@dataclass(frozen=True, slots=True)
class Guide:
    """A guide to connect the application with a framework. `missing` is the query that shows the URIs to register in the settings."""

    name: str
    label: str
    href: str  # the quickstart's name
    has_environment: bool  # whether its code reads the file `.env`
    install: str
    files: Mapping[str, str]  # name and text
    start: str
    unregistered: Sequence[str]
    missing: str


def guides(service: Service, secret: str | None) -> list[Guide]:
    """Return the guides for an application. `secret` is its client secret, if the page may show it."""
    return [_fill(framework, service, secret) for framework in FRAMEWORKS if service.service_type in framework.types]


def _fill(framework: Framework, service: Service, secret: str | None) -> Guide:
    quickstart = quickstarts.load(framework.page)
    redirect_uri = _usable(framework, quickstart, service.redirect_uris) or quickstart.redirect_uri
    filled = quickstarts.fill(quickstart, service, secret, kit.app_context().base_url, redirect_uri)
    needed = {
        REDIRECT_URIS: (redirect_uri, service.redirect_uris),
        POST_LOGOUT_REDIRECT_URIS: (filled.post_logout_redirect_uri, service.post_logout_redirect_uris),
    }
    unregistered = {
        name: uri for name, (uri, registered) in needed.items() if uri and uris.find_registered(registered, uris.canonicalize(uri)) is None
    }
    return Guide(
        name=framework.page,
        label=framework.label,
        href=f"{HOME}guides/quickstarts/{framework.page}",
        has_environment=filled.has_environment,
        install=filled.install,
        files=filled.files,
        start=filled.start_commands,
        unregistered=list(unregistered.values()),
        missing=urlencode(unregistered),
    )


def _usable(framework: Framework, quickstart: quickstarts.Quickstart, registered: Sequence[str]) -> str | None:
    """Return the first registered redirect URI that the quickstart's code can have, or None."""
    path = urlsplit(quickstart.redirect_uri).path
    for uri in registered:
        if quickstarts.PLAIN_URI.fullmatch(uri) and (urlsplit(uri).path == path if framework.fixed_path else True):
            return uri
    return None


def values_of(service: Service, secret: str | None) -> dict[str, Any]:
    """Return the values for `applications/_frameworks.html`."""
    environment = quickstarts.environment(service, secret, kit.app_context().base_url)
    return {"guides": guides(service, secret), "environment": environment, "has_secret": secret is not None}


routes = Blueprint("application_setup_pages", __name__)

PAGE: Final = f"{APPLICATION}/setup"


class SetupQuery(kit.Query):
    """Whether the page has the activity alone, for the script that waits for the first sign-in."""

    brief: kit.Flag | None = Field(None, description="Whether the page leaves the code out.")


@routes.get(PAGE)
@kit.member_page(Capability.SERVICES_VIEW)
@kit.refuses(400)
@kit.describes_page({200: "The page."}, api=[f"GET {SERVICE}", "GET /api/organizations/<org_slug>/sign-ins"])
async def show_setup(org_slug: str, service_slug: str, query_args: SetupQuery) -> Response:
    """Show how to connect an application, and whether a user has signed in to it yet."""
    service = await services.find(kit.ports(), kit.acting_member(), service_slug)
    values = {
        **applications.application_values(service),
        **await applications.activity_values(service, waits=True),
        **values_of(service, None),
    }
    return await console_page("applications/setup.html", is_brief=bool(query_args.brief), **values)
