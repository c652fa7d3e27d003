"""Requests as the server passes them to the application.

Client libraries would repair malformed requests.
"""

from collections.abc import Iterable, MutableMapping
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

import trio
from quart_trio import QuartTrio
from werkzeug.datastructures import Headers

from core.authentication import connections
from core.federation.connections.routing import KnownRoutes
from core.kernel.connections import PlatformCredentials
from entrypoints.http.base.context import app_context, bind_context
from tests.support.builders import Answer

PEER = "203.0.113.9"
PATIENCE = 10.0  # seconds

Message = MutableMapping[str, Any]


def change_ports(app: QuartTrio, **changes: Any) -> None:
    """Let the application use these ports from now on."""
    here = app_context(app)
    bind_context(app, replace(here, ports=replace(here.ports, **changes)))


async def set_up(app: QuartTrio, configured: Iterable[PlatformCredentials]) -> None:
    """Set up these connections of the platform, and no others, as another start of the service does."""
    here = app_context(app)
    await connections.fill(here.ports, configured)
    bind_context(app, replace(here, known_routes=KnownRoutes()))


async def ask(
    app: QuartTrio,
    method: str,
    target: bytes | str,
    *,
    headers: Iterable[tuple[bytes, bytes]] = (),
    body: bytes | None = None,
    token: str | None = None,
    peer: str = PEER,
    host: bytes = b"gatehouse.test",
    chunked: bool = False,
    stalls: bool = False,
) -> Answer:
    """Send a request over ASGI.

    `target` stands in the request line. A body gets a Content-Length. With `stalls`, it never arrives.
    """
    raw = target.encode("ascii") if isinstance(target, str) else target
    path, _, query = raw.partition(b"?")
    sent = [(b"host", host), *((name.lower(), value) for name, value in headers)]
    if token is not None:
        sent.append((b"authorization", b"Bearer " + token.encode()))
    if body is not None:
        sent.append((b"transfer-encoding", b"chunked") if chunked else (b"content-length", b"%d" % len(body)))
    scope = {
        "type": "http",
        "http_version": "1.1",
        "asgi": {"spec_version": "2.1", "version": "3.0"},
        "method": method,
        "scheme": "http",
        "path": unquote(path.decode("ascii")),
        "raw_path": path,
        "query_string": query,
        "root_path": "",
        "headers": sent,
        "client": (peer, 50000),
        "server": ("127.0.0.1", 8080),
    }
    incoming: list[Message] = [] if stalls else [{"type": "http.request", "body": body or b"", "more_body": False}]
    outgoing: list[Message] = []

    async def receive() -> Message:
        if incoming:
            return incoming.pop()
        await trio.sleep_forever()
        raise AssertionError

    async def send(message: Message) -> None:
        await trio.lowlevel.checkpoint()
        outgoing.append(message)

    with trio.fail_after(PATIENCE):
        await app.asgi_app(scope, receive, send)  # type: ignore[arg-type]
    start, *parts = (message for message in outgoing if message["type"] in ("http.response.start", "http.response.body"))
    assert start["type"] == "http.response.start"
    answered = b"".join(part.get("body", b"") for part in parts)
    received = Headers([(name.decode("latin-1"), value.decode("latin-1")) for name, value in start["headers"]])
    return Answer(start["status"], received, answered.decode("utf-8"))
