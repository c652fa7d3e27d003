"""A fake SIEM: an HTTP server that records requests and answers as a test chooses."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import h11
import trio

from tests.fakes.requests import Request
from tests.support.waiting import PATIENCE, eventually


class Post(Request):
    """A request to the SIEM."""

    @property
    def items(self) -> list[Any]:
        """Return the objects in the body: in an array, or several objects in a row."""
        decoder, text, position, items = json.JSONDecoder(), self.body.decode(), 0, []
        while position < len(text):
            item, position = decoder.raw_decode(text, position)
            items.append(item)
            position += len(text[position:]) - len(text[position:].lstrip())
        return items[0] if items and isinstance(items[0], list) else items

    @property
    def entries(self) -> list[dict[str, Any]]:
        """Return the audit log entries in the body, for every provider."""
        return [item.get("event") or item.get("audit") or item for item in self.items]


@dataclass
class FakeSiem:
    """Answers every request with `status`.

    `answers` has another status for some paths. At a path in `gates`, the response waits for the event. `posts` has all
    requests, `accepted` the requests that were answered with 2xx.
    """

    nursery: trio.Nursery
    port: int = 0
    status: int = 200
    answers: dict[str, int] = field(default_factory=dict)
    gates: dict[str, trio.Event] = field(default_factory=dict)
    posts: list[Post] = field(default_factory=list)
    accepted: list[Post] = field(default_factory=list)
    busiest: dict[str, int] = field(default_factory=dict)  # the most concurrent requests by path
    _concurrent: dict[str, int] = field(default_factory=dict)
    _open: trio.CancelScope | None = None

    def url(self, path: str = "/collect") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    async def open(self) -> None:
        """Start to listen, at the same port as before."""
        listeners = await trio.open_tcp_listeners(self.port, host="127.0.0.1")
        self.port = listeners[0].socket.getsockname()[1]
        self._open = trio.CancelScope()

        async def serve(scope: trio.CancelScope) -> None:
            with scope:
                await trio.serve_listeners(self._handle, listeners)

        self.nursery.start_soon(serve, self._open)

    def close(self) -> None:
        """Stop at once, even during a request."""
        if self._open is not None:
            self._open.cancel()

    def entries(self, path: str | None = None) -> list[dict[str, Any]]:
        """Return the accepted entries as they arrived."""
        return [entry for post in self.accepted if path in (None, post.path) for entry in post.entries]

    async def until(self, condition: Callable[[], object], what: str) -> None:
        await eventually(condition, what, PATIENCE)

    async def _handle(self, stream: trio.SocketStream) -> None:
        async with stream:
            with suppress(trio.BrokenResourceError, h11.RemoteProtocolError):  # the client closed the connection
                await self._answer(stream, await Post.read(stream))

    async def _answer(self, stream: trio.SocketStream, post: Post) -> None:
        path = post.path
        self.posts.append(post)
        self._concurrent[path] = self._concurrent.get(path, 0) + 1
        self.busiest[path] = max(self.busiest.get(path, 0), self._concurrent[path])
        try:
            if path in self.gates:
                await self.gates[path].wait()
            status = self.answers.get(path, self.status)
            if 200 <= status < 300:
                self.accepted.append(post)
        finally:
            self._concurrent[path] -= 1
        await stream.send_all(f"HTTP/1.1 {status} Whatever\r\nContent-Length: 17\r\nLocation: /\r\n\r\nremote text, {status}\n".encode())


@asynccontextmanager
async def siem_sink() -> AsyncIterator[FakeSiem]:
    """A fake SIEM that listens."""
    async with trio.open_nursery() as nursery:
        sink = FakeSiem(nursery)
        await sink.open()
        yield sink
        nursery.cancel_scope.cancel()
