"""Test sign-ins at an organization's identity provider."""

from typing import Final

from quart import Blueprint, Response

from core.federation.connections import checks
from core.federation.connections.model.connections import ConnectionIncomplete
from core.federation.connections.model.openid import OpenIdAnswerRefused, OpenIdProviderUnreachable
from core.federation.connections.trips import ConnectionTestResult
from core.kernel.roles import Capability
from core.tenancy.model.settings import Design
from entrypoints.http.api.federation.connections.connections import CONNECTION as API
from entrypoints.http.base import cookies
from entrypoints.http.base.context import acting_member, app_context, ports
from entrypoints.http.base.rendering.templates import page_response, render
from entrypoints.http.edge.access import SHOWS, member_page
from entrypoints.http.edge.openapi import describes_page, refuses
from entrypoints.http.pages.console import shows
from entrypoints.http.pages.console_forms import Form, accepts, answers_with
from entrypoints.http.pages.federation.connections.places import ONE, check_page, path_of
from entrypoints.http.pages.federation.connections.visits import visit_response

routes = Blueprint("connection_test_pages", __name__)

TEST: Final = f"{ONE}/test"


@routes.get(TEST)
@member_page(Capability.INTEGRATIONS_MANAGE)
@shows(f"POST {API}/check")
async def show_test(org_slug: str, connection_slug: str) -> Response:
    """Check an organization's connection, or begin a test sign-in."""
    return await check_page(connection_slug, None)


@routes.post(TEST)
@member_page(Capability.INTEGRATIONS_MANAGE, SHOWS)
@refuses(404, 409, 429)
@accepts(f"POST {API}/check", answers=answers_with("The problems of the connection."))
async def check(org_slug: str, connection_slug: str, form: Form) -> Response:
    """Check an organization's connection."""
    return await check_page(connection_slug, await checks.check(ports(), acting_member(), connection_slug, app_context().base_url))


@routes.get(f"{TEST}/start")
@member_page(Capability.INTEGRATIONS_MANAGE)
@refuses(409, 429)
@describes_page(
    {
        200: "The problem for which no test can begin, or the page that posts our request to the identity provider.",
        303: "Redirect to the identity provider.",
    },
    changes_state=True,
    api=(f"POST {API}/check",),
)
async def start(org_slug: str, connection_slug: str) -> Response:
    """Begin a test sign-in.

    It signs no user in. The result is shown to the user who began it, and is not stored.
    """
    path, base_url = f"{path_of(connection_slug)}/test", app_context().base_url
    try:
        visit = await checks.begin_test(ports(), acting_member(), connection_slug, path, cookies.browser_id(), base_url)
    except (ConnectionIncomplete, OpenIdAnswerRefused, OpenIdProviderUnreachable) as problem:
        return await check_page(connection_slug, [checks.describe(problem)])
    return visit_response(visit)


def result_page(result: ConnectionTestResult, name: str | None = None, design: Design | None = None) -> Response:
    """Return the page with a test sign-in's result. A set-up link's reader gets another `name`, and a `design`."""
    problem = None if result.problem is None else checks.describe(result.problem)
    received = {} if result.received is None else {**result.received.values, **dict.fromkeys(result.received.objects)}
    page = render(
        "federation/connection_test_result.html",
        design=design,
        connection_name=name or result.connection.name,
        path=result.way_back,
        failure=problem,
        person=result.person,
        refused_email=result.refused_email,
        received=sorted(received.items()),
        missing=result.missing,
    )
    return page_response(page)
