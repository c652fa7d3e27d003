"""The paths to a connection's pages, and the page that shows its problems."""

from collections.abc import Sequence
from typing import Final

from quart import Response

from core.federation.connections import checks, connections
from core.federation.connections.model.connections import ConnectionProblem
from entrypoints.http.base.context import acting_member, app_context, ports
from entrypoints.http.pages.console import console_page, organization_path, redirect_with_notice
from entrypoints.http.pages.console_forms import ANSWERS_TO_FORM

LIST: Final = "/app/organizations/<org_slug>/connections"
ONE: Final = f"{LIST}/<connection_slug>"
ANSWERS_TO_IMPORTED: Final = {**ANSWERS_TO_FORM, 200: "The metadata are imported. The page shows their problems."}
ANSWERS_TO_SAVED: Final = {**ANSWERS_TO_FORM, 200: "The values are saved. The page shows the problems that the check found."}


def path_of(slug: str = "") -> str:
    """Return the path to a connection's page, or to the list."""
    return organization_path(f"/connections{slug and '/'}{slug}")


async def check_page(connection_slug: str, problems: Sequence[ConnectionProblem] | None, *, is_saved: bool = False) -> Response:
    """Return the page on which a connection is checked, with its problems. `is_saved`: values were saved in this request."""
    details = await connections.find(ports(), acting_member(), connection_slug)
    return await console_page(
        "federation/connection_test.html",
        connection=details.connection,
        path=path_of(connection_slug),
        list_path=path_of(),
        problems=problems,
        is_saved=is_saved,
    )


async def check_saved(connection_slug: str, notice: str, below: str = "") -> Response:
    """Check a connection after a save. Return to its page, or show the problems."""
    if problems := await checks.check_saved(ports(), acting_member(), connection_slug, app_context().base_url):
        return await check_page(connection_slug, problems, is_saved=True)
    return redirect_with_notice(notice, path_of(f"{connection_slug}{below}"))
