"""Opens every console page, and sends every form: as the access matrix sends it, and without its fields."""

from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass
from functools import cache
from typing import Final

from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from entrypoints.http.edge.access.declaration import access_of
from tests.proof.access.calls import Request, call, prepare, routes
from tests.proof.access.state import mark, undo
from tests.proof.access.table import OF_THE_SESSION, REQUESTS
from tests.proof.access.world import Caller, World
from tests.support.builders import Answer, run_sql

# An email, which has another structure than a page.
EMAIL_PREVIEW: Final = "GET /app/organizations/<org_slug>/branding/email/preview"
IN_CONSOLE: Final = frozenset({"member_page", "platform_page", "page_session"})
LARGEST: Final = 100_000  # bytes of a page
EMPTY: Final = "#empty"  # marks a form that was sent without its fields

_opened: list["Opened"] = []  # the pages that this worker has opened


@dataclass(frozen=True, slots=True)
class Opened:
    """A page, and how it was reached."""

    route: str
    answer: Answer

    @property
    def name(self) -> str:
        """The page's screenshot name."""
        method, _, path = self.route.partition(" /app")
        name = path.strip("/").translate(str.maketrans("/#", "--", "<>")) or "home"
        return name if method == "GET" else f"{name}-{method.lower()}"


def caller_of(world: World, view: object) -> Caller:
    """Return the browser with the most rights for this page."""
    access = access_of(view)  # type: ignore[arg-type]
    return world.callers["platform-browser" if access.name == "platform_page" else "browser"]


@cache
def operations(app: QuartTrio) -> dict[str, object]:
    """Return the console's routes with their views."""
    return {route: view for route, view in routes(app) if access_of(view).name in IN_CONSOLE and route != EMAIL_PREVIEW}


async def opened_pages(app: QuartTrio, pool: Pool, world: World) -> list[Opened]:
    """Return the unchanged world's pages. A worker opens them once, because the world is the same for all tests."""
    if not _opened:
        _opened.extend([page async for page in open_all(app, pool, world)])
    return _opened


async def open_all(app: QuartTrio, pool: Pool, world: World, only: Collection[str] | None = None) -> AsyncIterator[Opened]:
    """Yield every page that these console routes return, by default all. What a form changes is undone."""
    for route, view in operations(app).items():
        if only is not None and route not in only:
            continue
        caller, request = caller_of(world, view), REQUESTS.get(route, Request())
        variants = {route: request}
        if route.startswith("POST"):
            variants[route + EMPTY] = Request(form=OF_THE_SESSION, things=request.things, setup_sql=request.setup_sql)
        for name, variant in variants.items():
            start = await mark(pool)
            await run_sql(pool, "delete from rates")
            await prepare(pool, variant, caller)
            answer = await call(app, name, variant, caller)
            await undo(pool, start)
            if answer.headers.get("Content-Type", "").startswith("text/html") and answer.status != 303:
                yield Opened(name, answer)
