"""HTTP byte by byte, including input that client libraries would never send."""

import socket
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any, cast

import trio

from adapters.tls import TlsCertificate
from entrypoints.http.app import Application
from entrypoints.http.base.request_record import RequestRecord
from entrypoints.http.edge.middleware import App, EdgeMiddleware, EdgeOptions
from entrypoints.http.edge.protocol.client_connection import Malformed
from entrypoints.http.edge.protocol.listening import listen
from entrypoints.http.edge.protocol.server import Server
from tests.fakes.certificates import client_context
from tests.support.waiting import PATIENCE, eventually

NEVER = 10 * PATIENCE


@dataclass(frozen=True, slots=True)
class Tls:
    """The TLS contexts for a server and for a client that trusts it."""

    server: ssl.SSLContext
    client: ssl.SSLContext


# A module's fixture `tls` sets it:
tls_in_use: Tls | None = None


def make_tls(file: Path) -> Tls:
    """Return the contexts for a server with this certificate, as the service makes them."""
    return Tls(TlsCertificate(file, file).context, client_context(file))


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    headers: dict[str, str]  # repeated headers are joined with commas
    body: bytes


class Client:
    """A client's connection."""

    def __init__(self, stream: trio.SocketStream, trust: ssl.SSLContext | None = None) -> None:
        """Speak TLS if `trust` is given. The handshake begins with the first data."""
        self.transport = stream
        self.stream: trio.SocketStream | trio.SSLStream[trio.SocketStream] = stream
        if trust is not None:
            self.stream = trio.SSLStream(stream, trust, server_hostname="localhost", https_compatible=True)
        self._buffer = b""

    async def send(self, data: bytes) -> None:
        await self.stream.send_all(data)

    async def end(self) -> None:
        """Close this half of the connection. As many clients do, this client sends no close_notify."""
        await self.transport.send_eof()

    def reset_when_closed(self) -> None:
        self.transport.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    async def get(self, path: str, *headers: str, method: str = "GET") -> Reply:
        lines = [f"{method} {path} HTTP/1.1", "Host: test", *headers]
        await self.send(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
        return await self.reply(bodiless=method.upper() == "HEAD")

    async def reply(self, *, bodiless: bool = False) -> Reply:
        """Read the next response, including interim responses (100)."""
        with trio.fail_after(PATIENCE):
            first, *lines = (await self._until(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            headers: dict[str, str] = {}
            for line in lines:
                name, _, value = line.partition(":")
                name = name.lower()
                headers[name] = f"{headers[name]}, {value.strip()}" if name in headers else value.strip()
            _, code, reason = first.split(" ", 2)
            status = int(code)
            assert reason == HTTPStatus(status).phrase
            body = b""
            if bodiless or status in (100, 204, 304):
                pass
            elif headers.get("transfer-encoding") == "chunked":
                while size := int(await self._until(b"\r\n"), 16):
                    body += (await self._exactly(size + 2))[:-2]
                await self._exactly(2)
            else:
                body = await self._exactly(int(headers["content-length"]))
            return Reply(status, headers, body)

    async def rest(self) -> bytes:
        """Read everything until the server closes the connection, which it must do in time."""
        pieces, self._buffer = [self._buffer], b""
        with trio.fail_after(PATIENCE):
            while more := await self.stream.receive_some(65536):
                pieces.append(bytes(more))
        return b"".join(pieces)

    async def is_closed(self) -> bool:
        """Return whether the server closes in time without sending anything."""
        try:
            return await self.rest() == b""
        except trio.BrokenResourceError:
            return True

    async def _until(self, mark: bytes) -> bytes:
        while mark not in self._buffer:
            self._buffer += await self._more()
        data, _, self._buffer = self._buffer.partition(mark)
        return data

    async def _exactly(self, count: int) -> bytes:
        while len(self._buffer) < count:
            self._buffer += await self._more()
        data, self._buffer = self._buffer[:count], self._buffer[count:]
        return data

    async def _more(self) -> bytes:
        data = await self.stream.receive_some(65536)
        if not data:
            raise EOFError(f"the server closed after {self._buffer!r}")
        return bytes(data)


class Paths:
    """Routes as the middleware sees them."""

    def __init__(
        self, routes: dict[str, set[str]] | None = None, changing: set[str] | None = None, any_origin: set[str] | None = None
    ) -> None:
        self._routes = routes or {}
        self._changing = changing or set()
        self._open = any_origin or set()

    def methods(self, path: str) -> frozenset[str] | None:
        methods = self._routes.get(path)
        return None if methods is None else frozenset(methods)

    def changes_state(self, path: str) -> bool:
        return path in self._changing

    def allows_any_origin(self, path: str) -> bool:
        return path in self._open


@dataclass(slots=True)
class Served:
    """A running server and its records."""

    address: str | tuple[str, int]  # a path, or host and port
    exchanges: list[RequestRecord]
    trust: ssl.SSLContext | None = None  # by clients that speak TLS
    shutdown: trio.Event = field(default_factory=trio.Event)
    finished: trio.Event = field(default_factory=trio.Event)

    @property
    def port(self) -> int:
        assert not isinstance(self.address, str)
        return self.address[1]

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        if isinstance(self.address, str):
            stream = await trio.open_unix_socket(self.address)
        else:
            stream = await trio.open_tcp_stream(*self.address)
        async with stream:
            yield Client(stream, self.trust)

    async def refuses(self) -> bool:
        """Return whether the port is closed."""
        try:
            stream = await trio.open_tcp_stream("127.0.0.1", self.port)
        except OSError:
            return True
        await stream.aclose()
        return False

    async def observed(self, count: int = 1) -> list[RequestRecord]:
        """Return the request records, as soon as there are `count`."""
        return await eventually(lambda: self.exchanges if len(self.exchanges) >= count else None)


def serving(
    app: App,
    *,
    bind: str = "127.0.0.1:0",
    shutdown_grace: float = NEVER,
    headers_within: float = NEVER,
    send_within: float = NEVER,
    keep_alive: float = NEVER,
    **outer: Any,
) -> AbstractAsyncContextManager[Served]:
    """Serve the application with its middleware on a socket.

    Timeouts that a test does not set are too long to happen, so a closed connection has the reason
    under test.
    """
    exchanges: list[RequestRecord] = []
    options: dict[str, Any] = {"body_limit": lambda path: 256 * 1024, **outer}
    layered = EdgeMiddleware(app, routes=Paths(), observe=exchanges.append, options=EdgeOptions(**options))
    timeouts = {"headers_within": headers_within, "send_within": send_within, "keep_alive": keep_alive}
    return _serving(layered, layered.malformed, exchanges, bind, shutdown_grace=shutdown_grace, **timeouts)


def serving_gatehouse(app: Application) -> AbstractAsyncContextManager[Served]:
    """Serve the whole application on a socket."""
    asgi = cast("App", app)
    return _serving(asgi, app.middleware.malformed, [])


def serving_without_middleware(app: App) -> AbstractAsyncContextManager[Served]:
    """Serve the application alone on a socket."""
    return _serving(app, None, [])


@asynccontextmanager
async def _serving(
    app: App,
    malformed: Malformed | None,
    exchanges: list[RequestRecord],
    bind: str = "127.0.0.1:0",
    *,
    shutdown_grace: float = NEVER,
    headers_within: float = NEVER,
    send_within: float = NEVER,
    keep_alive: float = NEVER,
) -> AsyncIterator[Served]:
    listening = listen(bind)
    tls = tls_in_use
    served = Served(listening[0].getsockname(), exchanges, trust=None if tls is None else tls.client)
    contexts = None if tls is None else lambda: tls.server
    started = trio.Event()
    timeouts = {"headers_within": headers_within, "send_within": send_within, "keep_alive": keep_alive}
    server = Server(app=app, malformed=malformed, tls=contexts, **timeouts)

    async def run() -> None:
        await server.serve(listening, shutdown=served.shutdown, shutdown_grace=shutdown_grace, on_started=started.set)
        served.finished.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        await started.wait()
        yield served
        served.shutdown.set()
