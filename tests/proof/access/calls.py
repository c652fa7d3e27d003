"""Requests, as the tables and the leak test write them, and how they are sent."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

import trio
from quart import Quart

from adapters.postgres.engine.pool import Pool
from tests.proof.access.world import Caller
from tests.support.builders import Answer, Api, run_sql

Things = Mapping[str, str]

PATIENCE = 10.0  # seconds


@dataclass(frozen=True, slots=True)
class Request:
    """What is sent besides method and path. In every text `{name}` stands for a thing of the caller's (world.py)."""

    body: Mapping[str, Any] | None = None
    form: Mapping[str, str] | None = None
    query: Mapping[str, str] = field(default_factory=dict)
    things: Things = field(default_factory=dict)  # where others than the caller's are meant
    given: str = ""  # SQL that makes the world fit for it
    cookies: Mapping[str, str] = field(default_factory=dict)  # besides the caller's


async def prepare(pool: Pool, request: Request, caller: Caller) -> None:
    """Make the world fit for this request of this caller."""
    if request.given:
        await run_sql(pool, filled(request.given, caller.things))


async def call(api: Api, route: str, request: Request, caller: Caller) -> Answer:
    """The answer to the request; `route` is a method and a rule, such as `GET /api/organizations/<org_slug>`, and perhaps a way to ask."""
    method, rule = in_any_way(route).split()
    things = {**caller.things, **filled(request.things, caller.things)}
    path = re.sub(r"<(?:[a-z]+:)?([a-z_]+)>", lambda found: quote(things[found[1]], safe=""), rule)
    query = urlencode(filled(request.query, things), doseq=True)
    headers, raw = dict(caller.headers), None
    cookies = {**caller.cookies, **filled(request.cookies, things)}
    if cookies:
        headers["Cookie"] = "; ".join(f"{name}={value}" for name, value in cookies.items())
    if request.body is not None:
        headers["Content-Type"], raw = "application/json", json.dumps(filled(request.body, things)).encode()
    if request.form is not None:
        headers["Content-Type"], raw = "application/x-www-form-urlencoded", urlencode(filled(request.form, things)).encode()
    with trio.fail_after(PATIENCE):
        return await api.call(method, f"{path}?{query}" if query else path, raw=raw, headers=headers)


def in_any_way(route: str) -> str:
    """The route without the way in which it is asked."""
    return route.partition("#")[0]


def filled(value: Any, things: Things) -> Any:
    """`value` with every `{name}` in its texts replaced."""
    match value:
        case str():
            return value.format_map(things)
        case Mapping():
            return {name: filled(item, things) for name, item in value.items()}
        case list():
            return [filled(item, things) for item in value]
    return value


def routes(app: Quart) -> Iterator[tuple[str, Any]]:
    """Every route of the application and its view. HEAD and OPTIONS come with GET and run nothing of their own."""
    for rule in app.url_map.iter_rules():
        for method in sorted((rule.methods or set()) - {"HEAD", "OPTIONS"}):
            yield f"{method} {rule.rule}", app.view_functions[rule.endpoint]
