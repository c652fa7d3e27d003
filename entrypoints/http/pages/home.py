"""The console's start, which leads to what the signed-in user works with most, and the platform's overview."""

from quart import Blueprint, Response

from core.applications import figures
from core.applications.model.figures import FigureRange
from core.federation.connections import health as connection_health
from core.kernel.callers import OrganizationStatus
from core.kernel.display import format_day
from core.kernel.page_paths import ACCOUNT_PATH, HOME_PATH
from core.kernel.roles import is_admin
from core.maintenance import health
from core.tenancy import governance, organizations, platform_sign_in_policy
from core.tenancy.model.organizations import Membership
from entrypoints.http import kit
from entrypoints.http.edge.reauthentication import SIGNED_IN_PATH
from entrypoints.http.pages import console, navigation
from entrypoints.http.pages.applications.figures import show_results
from entrypoints.http.pages.tenancy.organization import NEW

routes = Blueprint("home", __name__)


@routes.get(HOME_PATH)
@kit.page_session(restricted=kit.Restricted.YES)
@kit.describes_page({303: "The browser is redirected to the user's start page."})
async def show_home() -> Response:
    """Go to your start page, which is also where a sign-in without a target leads.

    Platform owners start with the platform's overview, or create its first organization. Admins, owners, and members
    with further rights start in their first active organization, or with the list of their organizations if none is
    active. All other users start with their applications.
    """
    user = kit.signed_in()
    memberships = await organizations.list_own(kit.ports(), user)
    if user.is_platform_owner:
        counts = await governance.count_organizations(kit.ports())
        return kit.redirect(navigation.PLATFORM_PATH if any(counts.values()) else NEW)
    administered = [each for each in memberships if _administers(each[1])]
    if not administered:
        return kit.redirect(f"{ACCOUNT_PATH}/applications")
    for organization, membership in administered:
        if organization.status is OrganizationStatus.ACTIVE:
            return kit.redirect(navigation.first_page(organization.slug, membership.rights))
    return kit.redirect(f"{ACCOUNT_PATH}/organizations")


@routes.get(SIGNED_IN_PATH)
@kit.sign_in_session(restricted=kit.Restricted.YES)
@kit.describes_page({200: "The page."})
async def show_signed_in() -> Response:
    """Say that you are signed in again.

    The form whose session ended waits in another tab.
    """
    return kit.page_response(kit.render("authentication/signed_in.html", email=kit.signed_in().email))


def _administers(membership: Membership) -> bool:
    return is_admin(membership.rights) and membership.confirmed_at is not None


@routes.get(navigation.PLATFORM_PATH)
@kit.platform_page
@console.shows("GET /api/platform/organizations", "GET /api/platform/health", "GET /api/platform/analytics/sign-ins")
async def show_platform() -> Response:
    """Show the platform's overview: its organizations, and what waits for a platform owner."""
    own = [each for each in await organizations.list_own(kit.ports(), kit.signed_in()) if _administers(each[1])]
    due, lacking = await platform_sign_in_policy.find_owners_without_factor(kit.ports())
    return await console.console_page(
        "platform/overview.html",
        due=None if due is None else format_day(due),
        lacks_factor=kit.signed_in().email in lacking,
        others_lacking=len([address for address in lacking if address != kit.signed_in().email]),
        counts=await governance.count_organizations(kit.ports()),
        chart=show_results(*await figures.load_results(kit.ports(), FigureRange.WEEK)),
        problems=[*(await health.measure(kit.ports())).find_problems(), *await connection_health.find_problems(kit.ports())],
        own=[
            (each.name, navigation.first_page(each.slug, membership.rights))
            for each, membership in own
            if each.status is OrganizationStatus.ACTIVE
        ],
    )
