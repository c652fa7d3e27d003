"""The rows for console pages in the access matrix. They follow from the API operations that the pages name.

So nothing is possible on a page that the API refuses, and the reverse.
"""

from collections.abc import Mapping
from functools import cache
from typing import Final

from core.kernel.sign_in_age import SignInAge
from entrypoints.http.edge.access.declaration import Access, access_of
from entrypoints.http.edge.access.effects import EffectRow
from entrypoints.http.edge.openapi import docs_of
from entrypoints.http.pages.curl import operations_of
from tests.proof.access.calls import without_variant
from tests.support.builders import application

# A page answers success with itself, or with a redirect to a console page.
DONE: Final = "done"
CONSOLE: Final = frozenset({"member_page", "platform_page"})
NO_MEMBERS: Final = frozenset({"stranger-browser", "platform-browser"})
# The API caller with the same user as a browser.
SAME_USER: Final = {
    "browser": "owner",
    "browser-with-mfa": "with-mfa",
    "suspended-browser": "suspended",
    "admin-browser": "admin",
    "stranger-browser": "stranger",
    "platform-browser": "platform",
    "impersonating-browser": "owner",
}
# The API operation for every variant of a page.
VARIANTS: Final = {
    "POST /app/organizations/<org_slug>/invitations/new#admin": "POST /api/organizations/<org_slug>/invitations/bulk#admin",
}


@cache
def console_operations() -> Mapping[str, tuple[Access, str]]:
    """Return every page's access rule, and the API operation that does the same."""
    pages = ((operation, access_of(view), docs_of(view).api) for operation, view in operations_of(application()))
    return {operation: (access, api[0]) for operation, access, api in pages if access.name in CONSOLE and _is_own(operation)}


@cache
def personal_pages() -> frozenset[str]:
    """Return the pages on which the users act on their own account."""
    return frozenset(operation for operation, view in operations_of(application()) if access_of(view).name == "page_session")


@cache
def fresh_pages() -> frozenset[str]:
    """Return the pages that need a fresh sign-in, also to open them."""
    return frozenset(
        operation
        for operation, view in operations_of(application())
        if access_of(view).row(operation.partition(" ")[0]).age is SignInAge.FRESH
    )


def _is_own(operation: str) -> bool:
    return operation.partition(" ")[0] not in ("HEAD", "OPTIONS")


def console_rows(people: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str]]:
    """Return the expected status for every browser by page, from the API's rows."""
    rows = {page: _row(page, access, people[same]) for page, (access, same) in console_operations().items()}
    for page, same in VARIANTS.items():
        access, _ = console_operations()[without_variant(page)]
        rows[page] = _row(page, access, people[same])
    return rows


def _row(page: str, access: Access, row: Mapping[str, str]) -> dict[str, str]:
    cells = {browser: _cell(access, access.row(page.partition(" ")[0]), browser, row[user]) for browser, user in SAME_USER.items()}
    return {"else": "303*", "ended-browser": "303*"} | cells


def _cell(access: Access, effect: EffectRow, browser: str, cell: str) -> str:
    if access.name == "platform_page" and browser != "platform-browser":
        return "403"  # the API lets organization owners export and anonymize some people, too
    if browser == "impersonating-browser" and effect.outlives:
        return "403"
    if cell.startswith("2"):
        return DONE
    # To users who are not members, an organization's page does not exist (decision 264).
    return "404" if cell == "403" and access.name == "member_page" and browser in NO_MEMBERS else cell
