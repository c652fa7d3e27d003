"""A receiver of webhooks: a real HTTP server on Trio, which answers as it is told to, path by path, and keeps what it got."""

from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

import h11
import trio

from tests.fakes.requests import Request

TAKEN: Final = b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"
DRIP: Final = 0.05  # seconds between two bytes

Stream = trio.abc.Stream
Answer = bytes | Callable[[Stream], Awaitable[None]]


class Got(Request):
    """One request."""

    @property
    def id(self) -> str:
        """Of the delivery."""
        return self.headers["webhook-id"]


def answer(status: int, body: bytes = b"", *more: str) -> bytes:
    """What to answer with; `more` are headers."""
    head = "\r\n".join([f"HTTP/1.1 {status} Answer", f"Content-Length: {len(body)}", "Connection: close", *more])
    return f"{head}\r\n\r\n".encode() + body


async def hang(stream: Stream) -> None:
    """Take the request, and answer nothing."""
    await trio.sleep_forever()


async def drip(stream: Stream) -> None:
    """Answer little by little, for ever."""
    await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
    while True:
        await stream.send_all(b".")
        await trio.sleep(DRIP)


class Receiver:
    """Takes everything, but at the paths in `answers` answers with that. `begun` counts requests, `got` holds those that were answered."""

    def __init__(self) -> None:
        self.port = 0
        self.answers: dict[str, Answer] = defaultdict(lambda: TAKEN)
        self.got: list[Got] = []
        self.begun: Counter[str] = Counter()
        self.open: Counter[str] = Counter()  # requests that are being answered, by path
        self.most: Counter[str] = Counter()  # the most of them at once
        self._changed = trio.Event()

    def url(self, path: str = "/") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def at(self, path: str) -> list[Got]:
        """What came there."""
        return [each for each in self.got if each.path == path]

    async def arrived(self, count: int, path: str | None = None) -> list[Got]:
        """What has come, once it is as many, or as many at this path."""
        while len(found := self.got if path is None else self.at(path)) < count:
            await self._changed.wait()
        return found

    async def at_the_door(self, path: str, count: int = 1) -> None:
        """Return once so many requests for the path have come, answered or not."""
        while self.begun[path] < count:
            await self._changed.wait()

    async def handle(self, stream: trio.SocketStream) -> None:
        async with stream:
            with suppress(trio.BrokenResourceError, h11.RemoteProtocolError):  # the other side has had enough, or was killed
                await self._answer(stream, await Got.read(stream))

    async def _answer(self, stream: Stream, got: Got) -> None:
        self.begun[got.path] += 1
        self.open[got.path] += 1
        self.most[got.path] = max(self.most[got.path], self.open[got.path])
        self._tell()
        given = self.answers[got.path]
        try:
            if isinstance(given, bytes):
                await stream.send_all(given)
            else:
                await given(stream)
        finally:
            self.open[got.path] -= 1
        self.got.append(got)
        self._tell()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = trio.Event()


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    """A receiver on a port of its own."""
    receiver = Receiver()
    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        receiver.port = listeners[0].socket.getsockname()[1]
        nursery.start_soon(trio.serve_listeners, receiver.handle, listeners)
        yield receiver
        nursery.cancel_scope.cancel()
