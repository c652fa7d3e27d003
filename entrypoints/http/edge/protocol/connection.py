"""A request through Quart. Its body is received only when the application reads it."""

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack
from typing import Any, cast

from quart.utils import encode_headers
from quart.wrappers.response import DataBody
from quart_trio.asgi import TrioASGIHTTPConnection
from quart_trio.wrappers.request import TrioBody
from werkzeug.datastructures import Headers, ImmutableMultiDict

from entrypoints.http.edge.middleware import Receive
from entrypoints.http.edge.protocol.request_checks import Scope
from entrypoints.http.edge.size_limits import MAX_BODY


class LazyBody(TrioBody):
    """A request body that is received when the application first awaits it, so that a request can be refused without its body.

    The middleware limits its size. A body is large if it has more than MAX_BODY bytes: by its Content-Length, or else
    as soon as more have arrived. Only directories may send large bodies (security N-3), and every large body must be
    admitted (security N-10).
    """

    receive: Receive

    def __init__(self, expected_content_length: int | None, max_content_length: int | None) -> None:
        # Not the base class's state: its events connect Quart-Trio's two tasks for a request.
        self._expected = expected_content_length or 0
        self._admit: Callable[[], AbstractContextManager[None]] | None = None
        self._admission: ExitStack | None = None
        self._received: bytes | None = None

    def admit_with(self, admit: Callable[[], AbstractContextManager[None]]) -> None:
        """Admit the body if it is large, now or when it becomes large."""
        self._admit = admit
        self._admit_if_large(self._expected)

    @property
    def is_large(self) -> bool:
        """Return whether the body is known to be large."""
        return self._expected > MAX_BODY or self._admission is not None

    def _admit_if_large(self, size: int) -> None:
        if size > MAX_BODY and self._admission is None:
            assert self._admit is not None, "only directories may send large bodies"
            admission = ExitStack()
            admission.enter_context(self._admit())
            self._admission = admission

    def release(self) -> None:
        """Discard the body, so that another body can be admitted in its place."""
        self.clear()
        if self._admission is not None:
            self._admission.close()

    def clear(self) -> None:
        self._received = b""

    def __await__(self) -> Generator[Any, None, bytes]:
        return self._read().__await__()

    async def __anext__(self) -> bytes:
        raw = await self._read()
        if not raw:
            raise StopAsyncIteration
        self.clear()
        return raw

    async def _read(self) -> bytes:
        if self._received is None:
            self._received = b"".join(await self._receive_pieces())
        return self._received

    async def _receive_pieces(self) -> list[bytes]:
        pieces: list[bytes] = []
        size, more = 0, True
        while more:
            message = await self.receive()
            assert message["type"] == "http.request", "the middleware cancels the request at a disconnect"
            pieces.append(message.get("body", b""))
            more = message.get("more_body", False)
            size += len(pieces[-1])
            self._admit_if_large(size)
        return pieces


class RequestHeaders(Headers):
    """A request's headers. The server has checked their characters, so they are not checked again. They do not change."""

    def __init__(self, scope: Scope) -> None:
        # As Quart does, which reads the client's address from the first header of this name. So a client
        # cannot set it.
        peer = scope.get("client")
        self._list = [
            ("Remote-Addr", peer[0] if peer else ""),
            *((name.decode("latin-1").title(), value.decode("latin-1")) for name, value in scope["headers"]),
        ]
        self._values: dict[str, str] = {}
        for name, value in self._list:
            self._values.setdefault(name.lower(), value)

    # The base class compares the key with every header, and raises an error inside for a missing header.
    def get(self, key: str, default: Any = None, type: Any = None) -> Any:  # type: ignore[override]  # noqa: A002
        value = self._values.get(key.lower())
        if value is None:
            return default
        return value if type is None else super().get(key, default, type)


class RequestParameters(ImmutableMultiDict[str, str]):
    """A request's query parameters or cookies."""

    # The base class raises and catches an error for a missing key.
    def get(self, key: str, default: Any = None, type: Any = None) -> Any:  # type: ignore[override]  # noqa: A002
        return super().get(key, default, type) if key in self else default


class LazyBodyConnection(TrioASGIHTTPConnection):
    """A connection that handles the request in a single task.

    Quart-Trio runs two tasks per request: the first receives the body, waits for a disconnect, and then cancels the
    second. The middleware withholds the disconnect once the body is complete (security P-3), and the application
    receives the body itself. So the second task has no purpose. Its nursery and task switches cost about a tenth of a
    small request.
    """

    async def __call__(self, receive: Any, send: Any) -> None:
        scope: Any = self.scope
        request = self.app.request_class(
            scope["method"],
            scope["scheme"],
            scope["path"],
            scope["query_string"],
            RequestHeaders(scope),
            "",  # the root path
            scope["http_version"],
            send_push_promise=_push_nothing,
            scope=scope,
        )
        body = cast("LazyBody", request.body)
        body.receive = receive
        try:
            response = await self.app.handle_request(request)
        finally:
            body.release()
        content = response.response
        if isinstance(content, DataBody):  # in memory
            headers = encode_headers(response.headers)
            await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
            await send({"type": "http.response.body", "body": content.data})
        else:
            await self._send_response(send, response)


async def _push_nothing(path: str, headers: Headers) -> None:
    """Do nothing. The server offers no push."""
