"""The base of fake HTTP services: a real HTTP server in threads that can fail in all ways that a server can."""

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import parse_qsl, urlencode, urlsplit

TRAP: Final = "<script>what a provider says</script>"  # must not appear in our responses and logs


@dataclass(slots=True)
class Answer:
    """An endpoint's response.

    `drip` sends the body a byte at a time, forever. `hang` sends nothing.
    """

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    drip: bool = False
    hang: bool = False


def in_json(value: object, status: int = 200) -> Answer:
    return Answer(status, json.dumps(value).encode(), {"Content-Type": "application/json"})


def in_form(value: dict[str, Any]) -> Answer:
    return Answer(200, urlencode(value).encode(), {"Content-Type": "application/x-www-form-urlencoded"})


@dataclass(frozen=True, slots=True)
class ReceivedRequest:
    """A request.

    `sent` is a POST's form, otherwise the query. Header names are in lower case.
    """

    method: str
    path: str
    sent: dict[str, str]
    headers: dict[str, str] = field(repr=False)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64  # a connection that does not fit is tried again only after a second


class FakeServer:
    """The server, as a context manager.

    It listens at `address`, and its time is `now`. At the end, requests that wait for `gate`
    continue.
    """

    def __init__(self, *, now: Callable[[], float] = time.time, at: tuple[str, int] = ("127.0.0.1", 0)) -> None:
        self.now = now
        self.gate: threading.Event | None = None
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # otherwise a body waits 40 ms until its headers are acknowledged

            def do_GET(self) -> None:
                outer._handle(self)

            def do_POST(self) -> None:
                outer._handle(self)

            def do_DELETE(self) -> None:
                outer._handle(self)

            def date_time_string(self, timestamp: float | None = None) -> str:
                return super().date_time_string(outer.now() if timestamp is None else timestamp)

            def log_message(self, *_: object) -> None:
                pass

        self._server = _Server(at, Handler)
        self.address = f"http://{at[0]}:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.002})  # `shutdown` waits for it

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stopped.set()
        if self.gate is not None:
            self.gate.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _reply(self, request: ReceivedRequest) -> Answer:
        """Return the response to this request. Called from many threads."""
        raise NotImplementedError

    def _handle(self, handler: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(handler.path)
        length = int(handler.headers.get("Content-Length") or 0)
        sent = dict(parse_qsl(handler.rfile.read(length).decode() if handler.command == "POST" else parts.query))
        headers = {name.lower(): value for name, value in handler.headers.items()}
        self._send(handler, self._reply(ReceivedRequest(handler.command, parts.path, sent, headers)))

    def _send(self, handler: BaseHTTPRequestHandler, answer: Answer) -> None:
        try:
            if answer.hang:
                self._stopped.wait(10)
                return
            handler.send_response(answer.status)
            for name, value in answer.headers.items():
                handler.send_header(name, value)
            handler.send_header("Content-Length", str(10**6 if answer.drip else len(answer.body)))
            handler.end_headers()
            while answer.drip and not self._stopped.wait(0.02):
                handler.wfile.write(b" ")
                handler.wfile.flush()
            handler.wfile.write(answer.body)
        except OSError:  # the client has disconnected
            handler.close_connection = True
