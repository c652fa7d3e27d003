"""A fake webhook receiver: an HTTP server that records requests and answers as a test chooses."""

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


class ReceivedDelivery(Request):
    """A request to the receiver."""

    @property
    def id(self) -> str:
        """The delivery's id."""
        return self.headers["webhook-id"]


def answer(status: int, body: bytes = b"", *more: str) -> bytes:
    """Return a raw response. `more` has additional headers."""
    head = "\r\n".join([f"HTTP/1.1 {status} Answer", f"Content-Length: {len(body)}", "Connection: close", *more])
    return f"{head}\r\n\r\n".encode() + body


async def hang(stream: Stream) -> None:
    """Never answer."""
    await trio.sleep_forever()


async def drip(stream: Stream) -> None:
    """Send a response byte by byte, forever."""
    await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
    while True:
        await stream.send_all(b".")
        await trio.sleep(DRIP)


def answer_after(gate: trio.Event) -> Answer:
    """Return an answer with status 200 that waits for the event."""

    async def send(stream: Stream) -> None:
        await gate.wait()
        await stream.send_all(answer(200))

    return send


class Receiver:
    """Accepts every request, except at the paths in `answers`.

    `started` counts the requests by path. `got` has the requests that were answered.
    """

    def __init__(self) -> None:
        self.port = 0
        self.answers: dict[str, Answer] = defaultdict(lambda: TAKEN)
        self.got: list[ReceivedDelivery] = []
        self.started: Counter[str] = Counter()
        self.open: Counter[str] = Counter()  # requests without a response yet, by path
        self.most: Counter[str] = Counter()  # the most concurrent requests, by path
        self._changed = trio.Event()

    def url(self, path: str = "/") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def at(self, path: str) -> list[ReceivedDelivery]:
        """Return the answered requests for this path."""
        return [delivery for delivery in self.got if delivery.path == path]

    async def wait_for_answered(self, count: int, path: str | None = None) -> list[ReceivedDelivery]:
        """Wait for this many answered requests, in total or at this path, and return them."""
        while len(deliveries := self.got if path is None else self.at(path)) < count:
            await self._changed.wait()
        return deliveries

    async def wait_for_requests(self, path: str, count: int = 1) -> None:
        """Wait for this many requests to the path, answered or not."""
        while self.started[path] < count:
            await self._changed.wait()

    async def handle(self, stream: trio.SocketStream) -> None:
        async with stream:
            with suppress(trio.BrokenResourceError, h11.RemoteProtocolError):  # the client closed the connection, or was killed
                await self._answer(stream, await ReceivedDelivery.read(stream))

    async def _answer(self, stream: Stream, delivery: ReceivedDelivery) -> None:
        self.started[delivery.path] += 1
        self.open[delivery.path] += 1
        self.most[delivery.path] = max(self.most[delivery.path], self.open[delivery.path])
        self._notify()
        response = self.answers[delivery.path]
        try:
            if isinstance(response, bytes):
                await stream.send_all(response)
            else:
                await response(stream)
        finally:
            self.open[delivery.path] -= 1
        self.got.append(delivery)
        self._notify()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = trio.Event()


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    """A receiver that listens on a free port."""
    receiver = Receiver()
    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        receiver.port = listeners[0].socket.getsockname()[1]
        nursery.start_soon(trio.serve_listeners, receiver.handle, listeners)
        yield receiver
        nursery.cancel_scope.cancel()
