"""SIEMs to forward to: an HTTP server on Trio that answers as a test wants, keeps what it was sent, goes away, and comes back."""

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
    """What came in one request."""

    @property
    def items(self) -> list[Any]:
        """What is in the body: the objects of an array, or one object after the other."""
        decoder, text, at, found = json.JSONDecoder(), self.body.decode(), 0, []
        while at < len(text):
            item, at = decoder.raw_decode(text, at)
            found.append(item)
            at += len(text[at:]) - len(text[at:].lstrip())
        return found[0] if found and isinstance(found[0], list) else found

    @property
    def entries(self) -> list[dict[str, Any]]:
        """The entries of the audit log in it, whatever is around them."""
        return [item.get("event") or item.get("audit") or item for item in self.items]


@dataclass
class SiemSink:
    """Answers every post with `status`; `answers` has others for some paths, and at a path in `gates` the answer waits for its event.
    `posts` are all that came, `taken` those that are answered with 2xx."""

    nursery: trio.Nursery
    port: int = 0
    status: int = 200
    answers: dict[str, int] = field(default_factory=dict)
    gates: dict[str, trio.Event] = field(default_factory=dict)
    posts: list[Post] = field(default_factory=list)
    taken: list[Post] = field(default_factory=list)
    busiest: dict[str, int] = field(default_factory=dict)  # how many at once, at most, by path
    _at_once: dict[str, int] = field(default_factory=dict)
    _open: trio.CancelScope | None = None

    def url(self, path: str = "/collect") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    async def open(self) -> None:
        """Be there, at the same port as before."""
        listeners = await trio.open_tcp_listeners(self.port, host="127.0.0.1")
        self.port = listeners[0].socket.getsockname()[1]
        self._open = trio.CancelScope()

        async def serve(scope: trio.CancelScope) -> None:
            with scope:
                await trio.serve_listeners(self._handle, listeners)

        self.nursery.start_soon(serve, self._open)

    def close(self) -> None:
        """Be gone, in the middle of whatever is asked."""
        if self._open is not None:
            self._open.cancel()

    def entries(self, path: str | None = None) -> list[dict[str, Any]]:
        """All that were taken, in the order in which they came."""
        return [entry for post in self.taken if path in (None, post.path) for entry in post.entries]

    async def until(self, condition: Callable[[], object], what: str) -> None:
        await eventually(condition, what, PATIENCE)

    async def _handle(self, stream: trio.SocketStream) -> None:
        async with stream:
            with suppress(trio.BrokenResourceError, h11.RemoteProtocolError):  # the other side has had enough
                await self._answer(stream, await Post.read(stream))

    async def _answer(self, stream: trio.SocketStream, post: Post) -> None:
        path = post.path
        self.posts.append(post)
        self._at_once[path] = self._at_once.get(path, 0) + 1
        self.busiest[path] = max(self.busiest.get(path, 0), self._at_once[path])
        try:
            if path in self.gates:
                await self.gates[path].wait()
            status = self.answers.get(path, self.status)
            if 200 <= status < 300:
                self.taken.append(post)
        finally:
            self._at_once[path] -= 1
        await stream.send_all(f"HTTP/1.1 {status} Whatever\r\nContent-Length: 17\r\nLocation: /\r\n\r\nremote text, {status}\n".encode())


@asynccontextmanager
async def siem_sink() -> AsyncIterator[SiemSink]:
    """One that is there."""
    async with trio.open_nursery() as nursery:
        sink = SiemSink(nursery)
        await sink.open()
        yield sink
        nursery.cancel_scope.cancel()
