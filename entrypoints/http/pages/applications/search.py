"""The console's search: an organization's pages, applications, webhooks, members and users, and the documentation."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from pydantic import Field
from quart import Blueprint, Response

from core.applications import end_users, services
from core.eventing import webhooks
from core.kernel.roles import Capability
from core.kernel.values import Page
from core.tenancy import members
from entrypoints.http import kit
from entrypoints.http.base.rendering import documentation
from entrypoints.http.base.rendering.documentation import Section
from entrypoints.http.pages import console
from entrypoints.http.pages.applications.applications import application_path
from entrypoints.http.pages.navigation import pages_for

routes = Blueprint("search_pages", __name__)

MOST_SHOWN: Final = 5  # results per kind
KINDS: Final = ("pages", "applications", "webhooks", "members", "users", "guides")


class SearchQuery(kit.Query):
    """The text to search for."""

    search: kit.Text = Field("", description="A part of a name, a slug or an email address, a user id or a client id.")


@routes.get("/app/organizations/<org_slug>/search")
@kit.member_page(Capability.SERVICES_VIEW)
@console.shows(*(f"GET /api/organizations/<org_slug>/{name}" for name in ("services", "members", "users", "webhooks")))
async def search(org_slug: str, query_args: SearchQuery) -> Response:
    """Search an organization's pages, applications, webhooks, members and users, and the documentation.

    Webhooks, members and users are shown to users who can open their pages.
    """
    text = query_args.search.strip()
    values: dict[str, Any] = await _find(text) if text else dict.fromkeys(KINDS, ())
    return await console.console_page("applications/search.html", text=text, most=MOST_SHOWN, **values)


async def _find(text: str) -> dict[str, Sequence[tuple[str, str]]]:
    """Return the name and the path for every result, by kind."""
    first = Page(1, MOST_SHOWN + 1)
    batches, _ = await services.list_services(kit.ports(), kit.acting_member(), None, MOST_SHOWN + 1, 0, search=text)
    own = await members.list_page(kit.ports(), kit.acting_member(), None, first, search=text) if console.may("members.manage") else None
    users = await end_users.list_end_users(kit.ports(), kit.acting_member(), first, search=text) if console.may("end_users.view") else None
    hooks = await webhooks.search(kit.ports(), kit.acting_member(), text) if console.may("webhooks.manage") else []
    sections = await kit.ports().threads.run(partial(documentation.search, text))
    return {
        "pages": [(name, path) for name, path in pages_for(kit.acting_member()) if text.lower() in name.lower()],
        "applications": [(summary.service.name, application_path(summary.service.slug)) async for batch in batches for summary in batch],
        "webhooks": [(webhook.name, console.organization_path(f"/webhooks/{webhook.id}/deliveries")) for webhook in hooks],
        "members": [(member.email, console.organization_path(f"/members/{member.user_id}")) for member in (own.members if own else ())],
        "users": [(user.email, console.organization_path(f"/users/{user.id}")) for user in (users.items if users else ())],
        "guides": [(_title(result.section), result.section.href) for result in sections],
    }


def _title(section: Section) -> str:
    """Return the title of a documentation section, with its page's title."""
    return section.page if section.heading in ("", section.page) else f"{section.page}: {section.heading}"
