"""Requests in the access tests, and how they are sent."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from secrets import token_urlsafe
from typing import Any
from urllib.parse import quote, unquote, urlencode

import trio
from quart import Quart
from quart_trio import QuartTrio
from werkzeug.datastructures import Headers

from adapters.postgres.engine.pool import Pool
from tests.proof.access.world import Caller
from tests.support.builders import Answer, run_sql

Things = Mapping[str, str]

PATIENCE = 10.0  # seconds
PEER = "203.0.113.9"


@dataclass(frozen=True, slots=True)
class Request:
    """What a request has besides method and path.

    In every text, `{name}` stands for a thing of the caller (world.py).
    """

    body: Mapping[str, Any] | None = None
    form: Mapping[str, str] | None = None
    file: bytes | None = None  # an image: with a form as the field `image`, else as the body
    query: Mapping[str, str] = field(default_factory=dict)
    things: Things = field(default_factory=dict)  # things that do not belong to the caller
    setup_sql: str = ""  # SQL that prepares the world for the request
    cookies: Mapping[str, str] = field(default_factory=dict)  # besides the caller's
    headers: Mapping[str, str] = field(default_factory=dict)  # besides the caller's


async def prepare(pool: Pool, request: Request, caller: Caller) -> None:
    if request.setup_sql:
        await run_sql(pool, filled(request.setup_sql, caller.things))


async def age_sessions(pool: Pool, caller: Caller, age: timedelta) -> None:
    """Age the sessions and proofs in the caller's account."""
    assert caller.account is not None
    old = """
        update sessions set created_at = created_at - %s, authenticated_at = null, proofs = (
            select jsonb_agg(p || jsonb_build_object('at', (p ->> 'at')::timestamptz - %s)) from jsonb_array_elements(proofs) p)
        where user_id = %s"""
    await run_sql(pool, old, age, age, caller.account.id)


async def call(app: QuartTrio, route: str, request: Request, caller: Caller, patience: float = PATIENCE, peer: str = PEER) -> Answer:
    """Send the request.

    `route` is a method and a rule, such as `GET /api/organizations/<org_slug>`, with an optional `#` variant.
    `patience` is the time in seconds after which the test fails, and `peer` the client's address.
    """
    method, rule = without_variant(route).split()
    things = {**caller.things, **filled(request.things, caller.things)}
    path = re.sub(r"<(?:[a-z]+:)?([a-z_]+)>", lambda match: quote(things[match[1]], safe=""), rule)
    query = urlencode(filled(request.query, things), doseq=True)
    headers, raw = {**caller.headers, **filled(request.headers, things)}, None
    cookies = {**caller.cookies, **filled(request.cookies, things)}
    if cookies:
        headers["Cookie"] = "; ".join(f"{name}={value}" for name, value in cookies.items())
    if request.body is not None:
        headers["Content-Type"], raw = "application/json", json.dumps(filled(request.body, things)).encode()
    if request.form is not None:
        key = {"form_key": token_urlsafe(16)} if "form_token" in request.form else {}  # a form is always a new copy, unless it has a key
        fields = {**key, **filled(request.form, things)}
        headers["Content-Type"], raw = "application/x-www-form-urlencoded", urlencode(fields).encode()
        if request.file is not None:
            headers["Content-Type"], raw = "multipart/form-data; boundary=limit", _to_parts(fields, request.file)
    elif request.file is not None:
        headers["Content-Type"], raw = "image/png", request.file
    with trio.fail_after(patience):
        return await send(app, method, path, query, headers, raw or b"", peer)


def _to_parts(fields: Mapping[str, str], file: bytes) -> bytes:
    parts = [f'Content-Disposition: form-data; name="{name}"\r\n\r\n{text}'.encode() for name, text in fields.items()]
    parts.append(b'Content-Disposition: form-data; name="image"; filename="image.png"\r\nContent-Type: image/png\r\n\r\n' + file)
    return b"".join(b"--limit\r\n" + part + b"\r\n" for part in parts) + b"--limit--\r\n"


async def send(app: QuartTrio, method: str, path: str, query: str, headers: Mapping[str, str], body: bytes, peer: str = PEER) -> Answer:
    """Send a request straight to the application.

    The test client would keep a caller's cookies for the next caller. It is also slower, which counts with so many
    requests.
    """
    sent = {"Host": "localhost", "User-Agent": "tests", "Content-Length": str(len(body)), **headers}
    scope: Any = {
        "type": "http",
        "asgi": {"spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.lower().encode(), value.encode()) for name, value in sent.items()],
        "client": (peer, 40000),
        "server": ("localhost", 80),
        "extensions": {},
    }
    requests, answers = [{"type": "http.request", "body": body, "more_body": False}], []

    async def receive() -> Any:
        return requests.pop() if requests else await trio.sleep_forever()

    async def answer(message: Any) -> None:
        answers.append(message)

    await app(scope, receive, answer)
    head, *parts = answers
    fields = Headers([(name.decode(), value.decode()) for name, value in head["headers"]])
    return Answer(head["status"], fields, b"".join(part.get("body", b"") for part in parts).decode())


def without_variant(route: str) -> str:
    return route.partition("#")[0]


def filled(value: Any, things: Things) -> Any:
    """Replace every `{name}` in the texts of `value`."""
    match value:
        case str():
            return value.format_map(things)
        case Mapping():
            return {filled(name, things): filled(item, things) for name, item in value.items()}
        case list():
            return [filled(item, things) for item in value]
    return value


@cache
def routes(app: Quart) -> tuple[tuple[str, Any], ...]:
    """Return the application's routes and views.

    HEAD and OPTIONS are left out: they come with GET.
    """
    return tuple(
        (f"{method} {rule.rule}", app.view_functions[rule.endpoint])
        for rule in app.url_map.iter_rules()
        for method in sorted((rule.methods or set()) - {"HEAD", "OPTIONS"})
    )
