"""The start of the console, which leads to what the signed-in user works with most."""

from quart import Blueprint, Response

from core.kernel.callers import OrganizationStatus
from core.kernel.page_paths import ACCOUNT_PATH, HOME_PATH
from core.kernel.roles import needs_roles_manage
from core.tenancy import organizations
from entrypoints.http.base.context import ports, signed_in
from entrypoints.http.base.redirects import redirect
from entrypoints.http.edge.access import page_session
from entrypoints.http.edge.openapi import describes_page
from entrypoints.http.pages.navigation import ORGANIZATION_PATH
from entrypoints.http.pages.tenancy.organization import NEW

routes = Blueprint("home", __name__)


@routes.get(HOME_PATH)
@page_session
@describes_page({303: "The browser is redirected to the user's start page."})
async def show_home() -> Response:
    """Go to your start page.

    Admins and owners start in their first active organization, or with the list of their organizations if none is
    active. Platform owners without one create it, and all others start with their applications.
    """
    memberships = await organizations.list_own(ports(), signed_in())
    administered = [
        organization
        for organization, membership in memberships
        if needs_roles_manage(membership.role) and membership.confirmed_at is not None
    ]
    if not memberships and signed_in().is_platform_owner:
        return redirect(NEW)
    if not administered:
        return redirect(f"{ACCOUNT_PATH}/applications")
    active = next((each for each in administered if each.status is OrganizationStatus.ACTIVE), None)
    return redirect(f"{ACCOUNT_PATH}/organizations" if active is None else ORGANIZATION_PATH.format(slug=active.slug))
