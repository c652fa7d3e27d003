"""This version's documentation, and the search in it. Everyone can read it."""

from functools import cache, partial

from pydantic import Field
from quart import Blueprint, Response, request

from core.kernel.errors import NotFound
from core.kernel.rate_limits import DOCUMENTATION_SEARCH
from entrypoints.http import kit
from entrypoints.http.base.rendering import documentation, guides
from entrypoints.http.base.rendering.templates import documentation_page

routes = Blueprint("documentation", __name__)


class SearchQuery(kit.Query):
    """The text to search for."""

    search: kit.Text = Field("", description="Words that a section must contain.")


@routes.get("/docs")  # the edge drops the slash in `guides.HOME`
@kit.operations
@kit.describes_page({200: "The page.", 304: "The browser has this page already."})
async def show_start() -> Response:
    """Show the documentation's start page.

    It describes the running version.
    """
    return await _show(guides.HOME)


@routes.get("/docs/search")
@kit.anyone(limit=DOCUMENTATION_SEARCH)
@kit.describes_page({200: "The page.", 304: "The browser has this page already."})
async def search(query_args: SearchQuery) -> Response:
    """Search the documentation.

    Returns the sections that have all the words, the best first.
    """
    results = await kit.ports().threads.run(partial(documentation.search, query_args.search))
    return _response(documentation_page("documentation/search.html", address=None, text=query_args.search, results=results))


@routes.get("/docs/<path:page>")
@kit.operations
@kit.describes_page({200: "The page or the file.", 304: "The browser has it already."}, other_content_types=("image/png", "text/plain"))
async def show_page(page: str) -> Response:
    """Show a documentation page.

    Pictures and files that pages link to have addresses below it, too.
    """
    return await _show(guides.HOME + page)


async def _show(address: str) -> Response:
    file = documentation.files().get(address)
    if file is None:
        raise NotFound
    if file.suffix != ".md":
        content_type = documentation.CONTENT_TYPES[file.suffix]
        return Response(file.read_bytes(), 200, {"Cache-Control": "public, max-age=3600"}, content_type=content_type)
    return _response(await kit.ports().threads.run(partial(_render, address)))


def _response(page: kit.Page) -> Response:
    if request.if_none_match.contains_raw(page.headers["ETag"]):
        return Response(b"", 304, dict(page.headers))
    return Response(page.body, page.status, dict(page.headers))


@cache
def _render(address: str) -> kit.Page:
    order = [(each, label) for pages in guides.navigation().values() for label, each in pages.items()]
    place = next(number for number, (each, _) in enumerate(order) if each == address)
    return documentation_page(
        "documentation/page.html",
        address=address,
        text="",
        document=documentation.read_document(documentation.files()[address]),
        previous=order[place - 1] if place else None,
        next=order[place + 1] if place + 1 < len(order) else None,
    )
