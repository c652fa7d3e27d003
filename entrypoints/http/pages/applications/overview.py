"""An organization's overview and sign-ins over time: by day, application and method, with the tasks that wait for its admins."""

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from quart import Blueprint, Response

from core.accounts.model.email_queue import NoticedSecret
from core.applications import analytics, figures
from core.applications.model.analytics import REVIEWS, CredentialToReview, Overview, PendingTask, fill_days
from core.applications.model.figures import FigureRange
from core.eventing.audit import load_authors
from core.kernel.roles import Capability
from entrypoints.http import kit
from entrypoints.http.api.applications.analytics import DateRangeQuery
from entrypoints.http.pages import console
from entrypoints.http.pages.applications.figures import show_users
from entrypoints.http.pages.applications.new_application import KINDS
from entrypoints.http.pages.charts import draw_days

routes = Blueprint("overview_pages", __name__)

# A task's sentence for one object and for several objects, and the page for its next step.
TASKS: Final[Mapping[PendingTask, tuple[str, str, str]]] = MappingProxyType(
    {
        PendingTask.CONNECTIONS_FAILING: (
            "Users can't sign in through a connection. Its page Health says why.",
            "Users can't sign in through {count} connections. Their pages Health say why.",
            "/connections",
        ),
        PendingTask.CERTIFICATES_EXPIRING: (
            "A SAML certificate expires soon. Replace it before users can't sign in.",
            "{count} SAML certificates expire soon. Replace them before users can't sign in.",
            "/applications",
        ),
        PendingTask.CONNECTION_CERTIFICATES_EXPIRING: (
            "A certificate of a connection expires soon. Its page Health says what to do.",
            "Certificates of {count} connections expire soon. Their pages Health say what to do.",
            "/connections",
        ),
        PendingTask.SERVICE_ACCOUNTS_ENDING: (
            "A service account ends soon, because its owner has left. Take it over, or end it now.",
            "{count} service accounts end soon, because their owners have left. Take them over, or end them now.",
            "/service-accounts",
        ),
        PendingTask.WEBHOOKS_FAILING: ("A webhook fails.", "{count} webhooks fail.", "/webhooks"),
        PendingTask.GROUP_ROLES_STOPPED: (
            "A group no longer gives its role: the member who gave it lost the right to. Give it again, or take it away.",
            "{count} groups no longer give their roles: the members who gave them lost the right to. Give them again, or take them away.",
            "/groups",
        ),
        PendingTask.SIEM_FAILING: ("Your SIEM does not accept entries.", "Your SIEM does not accept entries.", "/siem"),
        PendingTask.SIEM_PAUSED: ("Forwarding to your SIEM is off.", "Forwarding to your SIEM is off.", "/siem"),
        PendingTask.DOMAIN_UNVERIFIED: (
            "A domain is not verified yet. Set its DNS record.",
            "{count} domains are not verified yet. Set their DNS records.",
            "/domains",
        ),
        PendingTask.CONNECTIONS_WITHOUT_DOMAIN: (
            "No verified domain leads to an active connection. Its page Settings says what to do.",
            "No verified domain leads to {count} active connections. Their pages Settings say what to do.",
            "/connections",
        ),
        PendingTask.ADMINS_WITH_PASSWORD_ALONE: (
            "The password alone signs in to the account of an owner, admin or other member with more rights.",
            "The password alone signs in to the accounts of {count} owners, admins and other members with more rights.",
            "/members?state=admins_with_password_alone",
        ),
        PendingTask.INVITATIONS_PENDING: (
            "An invitation has no answer yet.",
            "{count} invitations have no answer yet.",
            "/invitations?status=pending",
        ),
        PendingTask.API_KEYS_TO_REVIEW: (
            "The creator of an API key has left, or may no longer create it. The key still works. Replace it.",
            "The creators of {count} API keys have left, or may no longer create them. The keys still work. Replace them.",
            "/applications",
        ),
        PendingTask.SCIM_TOKENS_TO_REVIEW: (
            "The creator of a SCIM token has left, or may no longer create it. The token still works. Replace it.",
            "The creators of {count} SCIM tokens have left, or may no longer create them. The tokens still work. Replace them.",
            "/directory",
        ),
        PendingTask.REGISTRATION_TOKENS_TO_REVIEW: (
            "The creator of a registration token has left, or may no longer create it. The token does not work. Replace it.",
            "The creators of {count} registration tokens have left, or may no longer create them. The tokens do not work. Replace them.",
            "/registration-tokens",
        ),
    }
)
KINDS_OF_SECRETS: Final = {
    NoticedSecret.API_KEY: ("API key", "still works, but"),
    NoticedSecret.SCIM_TOKEN: ("SCIM token", "still works, but"),
    NoticedSecret.REGISTRATION_TOKEN: ("registration token", "does not work:"),
}
NAMED_REVIEWS: Final = 5  # the credentials to review that are named
BROKEN: Final = frozenset({PendingTask.CONNECTIONS_FAILING, PendingTask.SIEM_FAILING})  # the other tasks wait for a person


@routes.get("/app/organizations/<org_slug>")
@kit.member_page(Capability.ANALYTICS_VIEW)
@console.shows("GET /api/organizations/<org_slug>/overview", "GET /api/organizations/<org_slug>/analytics/users")
async def show_overview(org_slug: str) -> Response:
    """Show an organization's overview."""
    view = await analytics.load_overview(kit.ports(), kit.acting_member())
    users = await figures.load_users(kit.ports(), kit.acting_member(), FigureRange.WEEK, with_populations=False)
    chart = draw_days("Sign-ins of the last 30 days", view.sign_ins)
    return await console.console_page(
        "applications/overview.html",
        members=view.members,
        applications=view.services,
        is_used=view.has_sign_ins,
        active=users.weeks[-1].active,
        users=show_users(users)[0],
        total=sum(each.count for each in view.sign_ins),
        chart=chart.to_svg("sign-ins"),
        kinds=KINDS,
        days=[each for each in reversed(view.sign_ins) if each.count],
        tasks=[
            *(
                (*_describe(task, count), task in BROKEN)
                for task, count in view.tasks.items()
                if task in TASKS and task not in REVIEWS.values()
            ),
            *((*each, False) for each in await _reviews(view)),
        ],
    )


def _describe(task: PendingTask, count: int) -> tuple[str, str]:
    one, several, path = TASKS[task]
    return (one if count == 1 else several).format(count=count), path


async def _reviews(view: Overview) -> list[tuple[str, str]]:
    """Return the sentences about credentials to review, with the pages for their next steps. The oldest are named, with their creators."""
    named = view.to_review[:NAMED_REVIEWS]
    authors = await load_authors(kit.ports(), kit.acting_member(), {credential.created_by for credential in named})
    rest = Counter(credential.task for credential in view.to_review[NAMED_REVIEWS:])
    return [
        *(_review(credential, authors.get(credential.created_by)) for credential in named),
        *(_describe(task, count) for task, count in rest.items()),
    ]


def _review(credential: CredentialToReview, author: str | None) -> tuple[str, str]:
    kind, state = KINDS_OF_SECRETS[credential.kind]
    holder = "" if credential.application is None else f" of {credential.application}"
    creator = "" if author is None else f" ({author})"
    text = f"The {kind} “{credential.name}”{holder} {state} its creator{creator} has left or may no longer create it. Replace it."
    slug = credential.application_slug
    return text, TASKS[credential.task][2] if slug is None else f"/applications/{slug}/api-keys"


ANALYTICS_API: Final = "GET /api/organizations/<org_slug>/analytics"
LONGEST_CHART: Final = 366  # days; a longer range has only its table
RECENT: Final = 10


@routes.get("/app/organizations/<org_slug>/analytics/days")
@kit.member_page(Capability.ANALYTICS_VIEW)
@console.shows(
    f"{ANALYTICS_API}/login-trends",
    f"{ANALYTICS_API}/logins-by-service",
    f"{ANALYTICS_API}/logins-by-provider",
    f"{ANALYTICS_API}/recent-logins",
)
async def show_analytics(org_slug: str, query_args: DateRangeQuery) -> Response:
    """Show an organization's sign-ins in a range of days."""
    caller, range_ = kit.acting_member(), query_args.date_range()
    counts = await analytics.count_by_day(kit.ports(), caller, range_)
    methods = kit.sign_in_methods()
    days = fill_days(counts, range_) if range_.length <= LONGEST_CHART else []
    return await console.console_page(
        "applications/analytics.html",
        range=range_,
        chart=draw_days("Sign-ins by day", days).to_svg("by-day") if days else None,
        total=sum(each.count for each in counts),
        days=sorted(((each.day, each.count) for each in counts), reverse=True)[:LONGEST_CHART],
        services=[(each.service_name, each.count) for each in await analytics.count_by_service(kit.ports(), caller, range_)],
        providers=[
            (kit.label(each.provider, methods), each.count) for each in await analytics.count_by_provider(kit.ports(), caller, range_)
        ],
        methods=methods,
        recent=await analytics.list_recent_logins(kit.ports(), caller, RECENT).next_batch()
        if console.may(Capability.END_USERS_VIEW)
        else None,
    )
