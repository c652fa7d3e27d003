"""Who may call what: exactly one of these decorators stands on every route, right below it, so that it runs first.

They are the table of access. Each takes the rate limits first (429), then the credentials (401), then what they allow (404, 403), and
all of that before anything of the request is parsed (decisions, point 16).
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial, wraps
from typing import Any, Final, overload

from quart import Quart, g, request

from core import sessions
from core.errors import Unauthenticated
from core.limits import Bucket
from entrypoints.http.bodies import check_query
from entrypoints.http.context import agent, anonymous, exchange, ports
from entrypoints.http.limits import admit

View = Callable[..., Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Access:
    """What a route asks of its caller. `security` names the scheme of the interface description, if it asks for credentials."""

    name: str
    security: str | None = None
    limited: bool = True
    limit: Bucket | None = None  # the route's own, besides those of its address


GUARDED_BY: Final = "_guarded_by"


class AccessDecorator:
    """Stands on a route as `@anyone`, or as `@anyone(limit=LOGIN)` where the route has a rate limit of its own."""

    def __init__(self, access: Access, enter: Callable[[], Awaitable[None]]) -> None:
        self._access = access
        self._enter = enter

    @overload
    def __call__(self, view: View, /) -> View: ...
    @overload
    def __call__(self, /, *, limit: Bucket) -> Callable[[View], View]: ...
    def __call__(self, view: View | None = None, /, *, limit: Bucket | None = None) -> View | Callable[[View], View]:
        if view is None:
            return AccessDecorator(replace(self._access, limit=limit), self._enter)
        return _guard(view, self._access, self._enter)


def _guard(view: View, access: Access, enter: Callable[[], Awaitable[None]]) -> View:
    @wraps(view)
    async def guarded(*args: Any, **kwargs: Any) -> Any:
        if access.limited:
            await admit(access.limit)
        await enter()
        check_query()
        return await view(*args, **kwargs)

    # Keyed by the function itself: `functools.wraps` copies attributes outward, so a mere mark would also show on whatever
    # another decorator wrapped around this one.
    setattr(guarded, GUARDED_BY, (guarded, access))
    return guarded


async def _as_anybody() -> None:
    g.caller = anonymous()


def bearer_token() -> str:
    """The token of the Authorization header, which is the only place one is taken from (security.md J-7)."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    token = token.lstrip(" ")
    if scheme.lower() != "bearer" or not token:
        raise Unauthenticated
    return token


async def _as_person(*, anywhere: bool) -> None:
    found = await sessions.authenticate(ports(), bearer_token(), address=exchange().address, agent=agent(), anywhere=anywhere)
    g.caller = found
    exchange().caller = str(found.user_id)
    if found.organization is not None:
        exchange().organization = found.organization.slug


anyone = AccessDecorator(Access("anyone"), _as_anybody)
# Load balancers and scrapers must always get an answer (organizations.md section 4.11).
operations = AccessDecorator(Access("operations", limited=False), _as_anybody)
person = AccessDecorator(Access("person", "bearer"), partial(_as_person, anywhere=False))
# Ending one's own session must work even where the organization of the token does not let its holder in any more.
person_anywhere = AccessDecorator(Access("person_anywhere", "bearer"), partial(_as_person, anywhere=True))


def access_of(view: Callable[..., Any]) -> Access:
    """The access of a registered view. Raises ValueError unless exactly one access decorator is there, and outermost."""
    found: list[tuple[Callable[..., Any], Access]] = []
    layer: Callable[..., Any] | None = view
    while layer is not None:
        guarded, access = layer.__dict__.get(GUARDED_BY, (None, None))
        if guarded is layer:
            found.append((layer, access))
        layer = getattr(layer, "__wrapped__", None)
    if not found:
        raise ValueError("it has no access decorator")
    if len(found) > 1:
        raise ValueError("it has more than one access decorator")
    [(outermost, access)] = found
    if outermost is not view:
        raise ValueError("its access decorator is not the outermost one")
    return access


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
