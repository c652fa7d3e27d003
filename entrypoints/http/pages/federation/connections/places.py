"""The paths of a connection's pages, and the page that shows its problems."""

from collections.abc import Sequence
from typing import Final

from quart import Response

from core.federation.connections import connections
from core.federation.connections.model.connections import ConnectionProblem
from entrypoints.http.base.context import acting_member, ports
from entrypoints.http.pages.console import console_page, organization_path

LIST: Final = "/app/organizations/<org_slug>/connections"
ONE: Final = f"{LIST}/<connection_slug>"


def path_of(slug: str = "") -> str:
    """Return the path of a connection's page, or of the list."""
    return organization_path(f"/connections{slug and '/'}{slug}")


async def check_page(connection_slug: str, problems: Sequence[ConnectionProblem] | None, *, is_saved: bool = False) -> Response:
    """Return the page on which a connection is checked, with the problems found. `is_saved`: its settings were just saved."""
    details = await connections.find(ports(), acting_member(), connection_slug)
    return await console_page(
        "federation/connection_test.html",
        connection=details.connection,
        path=path_of(connection_slug),
        list_path=path_of(),
        problems=problems,
        is_saved=is_saved,
    )
