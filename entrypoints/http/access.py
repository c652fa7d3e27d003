"""Who may call what: exactly one of these decorators stands on every route, right below it, so that it runs first.

They are the table of access. Each takes the rate limits first (429), then the credentials (401), then what they allow (404, 403), and
all of that before anything of the request is parsed (decisions, point 16).
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, Final

from quart import Quart, g, request

from core import sessions
from core.access import Person
from core.errors import Unauthenticated
from entrypoints.http.bodies import check_query
from entrypoints.http.context import agent, anonymous, exchange, ports
from entrypoints.http.limits import admit

View = Callable[..., Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Access:
    """What a route asks of its caller. `security` names the scheme of the interface description, if it asks for credentials."""

    name: str
    security: str | None


GUARDED_BY: Final = "_guarded_by"


def _guard(access: Access, enter: Callable[[], Awaitable[None]]) -> Callable[[View], View]:
    def decorate(view: View) -> View:
        @wraps(view)
        async def guarded(*args: Any, **kwargs: Any) -> Any:
            await admit()
            await enter()
            check_query()
            return await view(*args, **kwargs)

        # Keyed by the function itself: `functools.wraps` copies attributes outward, so a mere mark would also show on whatever
        # another decorator wrapped around this one.
        setattr(guarded, GUARDED_BY, (guarded, access))
        return guarded

    return decorate


async def _as_anybody() -> None:
    g.caller = anonymous()


def bearer_token() -> str:
    """The token of the Authorization header, which is the only place one is taken from (security.md J-7)."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    token = token.lstrip(" ")
    if scheme.lower() != "bearer" or not token:
        raise Unauthenticated
    return token


async def _enter_as_person(*, anywhere: bool) -> None:
    found = await sessions.authenticate(ports(), bearer_token(), address=exchange().address, agent=agent(), anywhere=anywhere)
    _take(found)


def _take(found: Person) -> None:
    g.caller = found
    exchange().caller = str(found.user_id)
    if found.organization is not None:
        exchange().organization = found.organization.slug


async def _as_person() -> None:
    await _enter_as_person(anywhere=False)


async def _as_person_anywhere() -> None:
    await _enter_as_person(anywhere=True)


anyone = _guard(Access("anyone", None), _as_anybody)
person = _guard(Access("person", "bearer"), _as_person)
# Ending one's own session must work even where the organization of the token does not let its holder in any more.
person_anywhere = _guard(Access("person_anywhere", "bearer"), _as_person_anywhere)


def operations(view: View) -> View:
    """Public, and without rate limits: load balancers and scrapers must always get an answer (organizations.md section 4.11)."""

    @wraps(view)
    async def guarded(*args: Any, **kwargs: Any) -> Any:
        g.caller = anonymous()
        return await view(*args, **kwargs)

    setattr(guarded, GUARDED_BY, (guarded, Access("operations", None)))
    return guarded


def access_of(view: Callable[..., Any]) -> Access:
    """The access of a registered view. Raises ValueError unless exactly one access decorator is there, and outermost."""
    found: list[Access] = []
    layer: Callable[..., Any] | None = view
    while layer is not None:
        mark = layer.__dict__.get(GUARDED_BY)
        if mark is not None and mark[0] is layer:
            if layer is not view:
                raise ValueError("its access decorator is not the outermost one")
            found.append(mark[1])
        layer = getattr(layer, "__wrapped__", None)
    if not found:
        raise ValueError("it has no access decorator")
    return found[0]


def check_every_route(app: Quart) -> None:
    """Refuse to start with a route that does not say who may call it. Raises ValueError naming the routes."""
    wrong = []
    for rule in app.url_map.iter_rules():
        try:
            access_of(app.view_functions[rule.endpoint])
        except ValueError as error:
            wrong.append(f"{rule.rule}: {error}")
    if wrong:
        raise ValueError("; ".join(sorted(wrong)))
