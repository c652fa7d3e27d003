"""The ASGI middleware around the application: it refuses, limits, adds headers and records requests (security P-3, P-5, P-6, N-3, N-5).

Every request passes through this module, so it scans the headers only once, without regular
expressions and needless copies. The application fills in the route and the caller in
`scope["request_record"]`. When the request ends, `observe` gets the record exactly once, and writes
the log line and the metrics.
"""

import math
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import Any, NoReturn

import structlog
import trio

from core.kernel import shares
from entrypoints.http.base.request_record import RequestRecord
from entrypoints.http.edge.client_address import NO_ADDRESS, Network, client_address, forwarded_address, is_local, limit_key
from entrypoints.http.edge.error_body import SENTENCES, error_body, internal_error_message
from entrypoints.http.edge.protocol import request_checks
from ports.observe import METHODS, OTHER

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[request_checks.Scope, Receive, Send], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

log = structlog.get_logger("http")

CLIENT_GONE = 499  # logged, never sent: the client disconnected before the response

BODY_WITHIN = 30.0  # seconds for the whole request body (security N-3)
SHUTDOWN_RESPONSE_WITHIN = 1.0  # seconds to send the 503 for a request that the shutdown canceled

# The scope key that says that the whole body has arrived, so that no task waits for it.
BODY_IS_HERE = "gatehouse.body_is_here"

# Probes may ask on a Unix socket directly, without a proxy.
HEALTH_PATHS = frozenset({"/health", "/health/live", "/health/ready"})


# Returns headers and body for an error response, for a record and an Accept header. Browsers get
# pages (security N-8).
RenderError = Callable[[request_checks.DirectResponse, RequestRecord, str | None], tuple[Headers, bytes]]


def json_error(error: request_checks.DirectResponse, record: RequestRecord, accept: str | None) -> tuple[Headers, bytes]:
    """Return headers and body for an error response in JSON."""
    return [(b"content-type", b"application/json")], error_body(error.message, error.code)


@dataclass(frozen=True, slots=True)
class EdgeOptions:
    """The middleware's limits and headers.

    `body_limit` returns a path's largest body, in bytes.

    `is_behind_proxy` says that the server listens on a Unix socket or on a socket from systemd. Every peer on this
    machine is a trusted proxy then.
    """

    body_limit: Callable[[str], int]
    trusted_proxies: Sequence[Network] = ()
    is_behind_proxy: bool = False
    cors_origin: str | None = None
    https: bool = False
    body_within: float = BODY_WITHIN  # seconds
    render_error: RenderError = json_error
    monotonic: Callable[[], float] = time.perf_counter


class EdgeMiddleware:
    """The middleware. It is an ASGI application around the application."""

    def __init__(self, app: App, *, routes: request_checks.Routes, observe: Callable[[RequestRecord], None], options: EdgeOptions) -> None:
        self._app = app
        self._routes = routes
        self._observe = observe
        self._body_limit = options.body_limit
        self._trusted = tuple(options.trusted_proxies)
        self._is_behind_proxy = options.is_behind_proxy
        self._cors_origin = options.cors_origin.encode() if options.cors_origin else None
        self.body_within = options.body_within
        self._render_error = options.render_error
        self._monotonic = options.monotonic
        self._always: Headers = [(b"x-content-type-options", b"nosniff")]
        if options.https:
            self._always.append((b"strict-transport-security", b"max-age=31536000"))

    async def __call__(self, scope: request_checks.Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._handle(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await self._app(scope, receive, send)

    def malformed(self, status: int, peer: str | None, *, observed: bool = True) -> tuple[Headers, bytes]:
        """Return the response to input that the server could not parse as a request, and observe it unless `observed` is false."""
        record = RequestRecord(request_checks.new_request_id(), OTHER, "", client_address(peer, None, ()))
        error = request_checks.DirectResponse(status, _MALFORMED.get(status, _MALFORMED[400]), close=True)
        record.status, record.error_code = status, error.code
        headers, body = self.render(error, record, None)
        if observed:
            self._observe(record)
        return self.with_common_headers(headers, record), body

    async def _handle(self, scope: request_checks.Scope, receive: Receive, send: Send) -> None:
        started = self._monotonic()
        headers, repeated, size = request_checks.scan_headers(scope)
        record = self._new_record(scope, headers)
        scope = {**scope, "request_record": record}  # ASGI requires a copy for a changed scope
        response = request_checks.check_request(scope, headers, repeated, size) or request_checks.normalize_target(scope, headers)
        record.path = scope["path"]
        if response is None and self._is_behind_proxy and record.address == NO_ADDRESS and record.path not in HEALTH_PATHS:
            log.warning("forwarded_for_missing", header="X-Forwarded-For", nginx=_NGINX_LINE, caddy="sent by default")
            response = _NOT_FORWARDED
        call = self._new_call(scope, record, headers, receive, send)
        outer = shares.current_share.set(shares.of_stranger(limit_key(record.address) if ":" in record.address else record.address))
        try:
            if response is None:
                response = self._respond_directly(call, headers)
            if response is None and call.has_body:
                response = self._limit_body(call, headers)
            if response is None:
                response = await self._run(scope, call)
            if response is not None and not call.started:
                await call.respond(response)
        except (trio.Cancelled, BaseExceptionGroup):
            await call.respond_to_shutdown()
            raise
        finally:
            shares.current_share.reset(outer)
            record.duration = self._monotonic() - started
            if not call.started:
                record.status = CLIENT_GONE
            self._observe(record)
        if record.after_response is not None:
            await record.after_response(record)

    def _new_record(self, scope: request_checks.Scope, headers: dict[bytes, bytes]) -> RequestRecord:
        method, peer = scope["method"], scope["client"][0] if scope.get("client") else None
        has_proxies = self._trusted or self._is_behind_proxy
        forwarded_for = headers[b"x-forwarded-for"].decode("latin-1") if has_proxies and b"x-forwarded-for" in headers else None
        if self._is_behind_proxy and is_local(peer):
            address = forwarded_address(forwarded_for, self._trusted) or NO_ADDRESS
        else:
            address = client_address(peer, forwarded_for, self._trusted)
        return RequestRecord(
            request_checks.choose_request_id(headers.get(b"x-request-id")), method if method in METHODS else OTHER, scope["path"], address
        )

    def _new_call(
        self, scope: request_checks.Scope, record: RequestRecord, headers: dict[bytes, bytes], receive: Receive, send: Send
    ) -> "_Call":
        """Return this request's state, with its path's CORS policy (security G-3)."""
        only_frontend = record.path.startswith("/api/") and self._cors_origin is not None
        allowed_origin = None
        if only_frontend:
            allowed_origin = self._cors_origin if headers.get(b"origin") == self._cors_origin else None
        elif self._routes.allows_any_origin(record.path):
            allowed_origin = b"*"
        has_body = b"content-length" in headers or b"transfer-encoding" in headers
        return _Call(
            self,
            record,
            receive,
            send,
            headers.get(b"accept"),
            has_body=has_body,
            may_wait=has_body and not (scope.get(BODY_IS_HERE) and b"content-length" in headers),
            varies_by_origin=only_frontend,
            allowed_origin=allowed_origin,
        )

    def _respond_directly(self, call: "_Call", headers: dict[bytes, bytes]) -> request_checks.DirectResponse | None:
        """Return the response to OPTIONS, and to HEAD on routes where GET has side effects. Neither runs a view."""
        method, path = call.record.method, call.record.path
        if method == "OPTIONS":
            methods = frozenset(METHODS) if path == "*" else self._routes.methods(path)
            if methods is None:
                return None  # the application responds with 404
            allow = request_checks.allow_header(methods)
            if call.allowed_origin is not None and b"access-control-request-method" in headers:
                return request_checks.DirectResponse(
                    204, headers=((b"allow", allow), (b"access-control-allow-methods", allow), *_PREFLIGHT)
                )
            return request_checks.DirectResponse(204, headers=((b"allow", allow),))
        if method == "HEAD" and self._routes.changes_state(path):
            return request_checks.DirectResponse(200)
        return None

    def _limit_body(self, call: "_Call", headers: dict[bytes, bytes]) -> request_checks.DirectResponse | None:
        """Limit the body's size. Return 413 if Content-Length is larger. A chunked body is counted when it is received."""
        call.remaining_bytes = self._body_limit(call.record.path)
        return _TOO_LARGE if int(headers.get(b"content-length", b"0")) > call.remaining_bytes else None

    async def _run(self, scope: request_checks.Scope, call: "_Call") -> request_checks.DirectResponse | None:
        """Run the application. Return an error if the body was too large or too slow, or if there was no response."""
        try:
            # A scope costs as much as the rest of this module, and only waiting for a body is canceled.
            with call.application if call.may_wait else nullcontext():
                await self._app(scope, call.receive, call.send)
        except Exception as error:
            # The application turns errors into responses. This error was raised outside its error
            # handler, or after the response started.
            if not call.client_gone:
                call.record.error = error
        if call.started or call.record.aborted:
            return None
        return call.body_refusal or request_checks.DirectResponse(500, internal_error_message(call.record.request_id))

    def render(self, response: request_checks.DirectResponse, record: RequestRecord, accept: str | None) -> tuple[Headers, bytes]:
        """Return a response's headers and body, without the common headers."""
        headers = list(response.headers)
        body = b""
        if response.status >= 400:
            rendered, body = self._render_error(response, record, accept)
            headers += [*rendered, (b"content-length", b"%d" % len(body))]
        if response.close:
            headers.append((b"connection", b"close"))
        return headers, body

    def with_common_headers(
        self,
        headers: Iterable[tuple[bytes, bytes]],
        record: RequestRecord,
        varies_by_origin: bool = False,
        allowed_origin: bytes | None = None,
    ) -> Headers:
        """Return a response's headers, with the common headers added. Headers that the application set are kept."""
        complete: Headers = [*headers, (b"x-request-id", record.request_id.encode()), *self._always]
        values = dict(complete)
        if b"cache-control" not in values:
            complete.append((b"cache-control", b"no-store"))
        if b"referrer-policy" not in values:
            complete.append((b"referrer-policy", b"no-referrer"))
        if b"content-security-policy" not in values and not values.get(b"content-type", b"").startswith(b"text/html"):
            complete.append((b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"))
        if varies_by_origin:
            # Set it for other origins too, and without an origin: a cache must not serve such a
            # response to the allowed origin.
            complete.append((b"vary", b"Origin"))
        if allowed_origin is not None:
            complete += [(b"access-control-allow-origin", allowed_origin), _EXPOSED]
        return complete


class _Call:
    """A request's state: the messages to and from the application."""

    __slots__ = (
        "_middleware", "_receive", "_send", "_sent", "accept", "allowed_origin", "application", "body_received", "body_refusal",
        "client_gone", "complete", "deadline", "has_body", "may_wait", "record", "remaining_bytes", "started", "varies_by_origin",
    )  # fmt: skip

    def __init__(
        self,
        middleware: EdgeMiddleware,
        record: RequestRecord,
        receive: Receive,
        send: Send,
        accept: bytes | None,
        *,
        has_body: bool,
        may_wait: bool,
        varies_by_origin: bool,
        allowed_origin: bytes | None,
    ) -> None:
        self._middleware = middleware
        self._receive = receive
        self._send = send
        self.record = record
        self.accept = accept
        self.has_body = has_body
        self.may_wait = may_wait  # the application may wait for the body, which can be refused then
        self.varies_by_origin = varies_by_origin
        self.allowed_origin = allowed_origin
        self.body_received = False  # completely
        self.started = False  # the response has started
        self.complete = False  # the last part of the response was passed to the server
        self._sent = False  # the server has sent the last part
        self.client_gone = False  # the server could not send
        if may_wait:
            self.application = trio.CancelScope()  # canceled only while the application waits for the body
        self.body_refusal: request_checks.DirectResponse | None = None  # why it was canceled
        self.deadline = math.inf  # for the request body
        self.remaining_bytes = 0  # that the body limit still allows

    async def receive(self) -> Message:
        if self.has_body and not self.may_wait and not self.body_received:
            self.body_received = True
            return await self._receive()
        if self.has_body and not self.body_received and self.deadline == math.inf:
            # The time starts when the application reads the body, because it may wait before it
            # does, such as a directory for its turn (security N-10).
            self.deadline = trio.current_time() + self._middleware.body_within
        with trio.move_on_at(self.deadline) as waiting:
            message = await self._receive()
        if waiting.cancelled_caught:
            await self._refuse_body(_TOO_SLOW)
        if message["type"] == "http.request":
            self.remaining_bytes -= len(message.get("body", b""))
            if self.has_body and self.remaining_bytes < 0:  # only chunked bodies; a Content-Length was checked before
                await self._refuse_body(_TOO_LARGE)
            if not message.get("more_body", False):
                self.body_received, self.deadline = True, math.inf
        elif message["type"] == "http.disconnect" and not self._sent:
            if not self.complete:
                self.record.aborted = True
            if self.body_received or self.complete:
                # Withhold the disconnect (security P-3). Quart-Trio would cancel the handler during
                # a query, and the pool would lose a connection. At the end of a response it would
                # cancel the server's cleanup, and the socket would stay open.
                await trio.sleep_forever()
            if self.has_body:  # the application waits for the rest of the body
                self.application.cancel()
                await trio.sleep_forever()
        return message

    async def _refuse_body(self, refusal: request_checks.DirectResponse) -> NoReturn:
        """Cancel the application, which waits for the body."""
        self.body_refusal = refusal
        self.application.cancel()
        await trio.sleep_forever()

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            self.record.status = message["status"]
            headers = self._middleware.with_common_headers(
                message.get("headers", ()), self.record, self.varies_by_origin, self.allowed_origin
            )
            closes = (b"connection", b"close")
            if self.has_body and not self.body_received and closes not in headers and not await self._skip_body():
                headers.append(closes)
            message = {**message, "headers": headers}
        last = message["type"] == "http.response.body" and not message.get("more_body", False)
        if last:
            self.complete = True
        try:
            await self._send(message)
        except OSError:  # ASGI's signal that the client is gone; let the application stop
            self.client_gone = self.record.aborted = True
            if message["type"] == "http.response.start":
                self.started = False
            raise
        if last:
            self._sent = True

    async def _skip_body(self) -> bool:
        """Discard the received part of a body that the application does not read. Return whether it is complete."""
        with trio.CancelScope() as scope:
            scope.cancel()  # do not wait for the rest
            while (message := await self._receive())["type"] == "http.request":
                if not message.get("more_body", False):
                    self.body_received = True
                    break
        return self.body_received

    async def respond(self, response: request_checks.DirectResponse) -> None:
        accept = None if self.accept is None else self.accept.decode("latin-1")
        headers, body = self._middleware.render(response, self.record, accept)
        if response.status >= 400:
            self.record.error_code = response.code
        with suppress(OSError):  # the client is gone
            await self.send({"type": "http.response.start", "status": response.status, "headers": headers})
            await self.send({"type": "http.response.body", "body": body})

    async def respond_to_shutdown(self) -> None:
        """Send 503 for a canceled request, unless the response has started or the client is gone.

        Only a shutdown past its deadline cancels requests. A clear response is better than a broken connection.
        """
        if not self.started and not self.record.aborted:
            with trio.move_on_after(SHUTDOWN_RESPONSE_WITHIN, shield=True):
                await self.respond(_SHUTTING_DOWN)


_MALFORMED = {**SENTENCES, 400: "The request is not valid HTTP."}
_NGINX_LINE = "proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;"
_NOT_FORWARDED = request_checks.DirectResponse(
    400, "The reverse proxy sent no client address. Let it set the header X-Forwarded-For; the log names the setting."
)
_TOO_LARGE = request_checks.DirectResponse(413, SENTENCES[413], close=True)
_TOO_SLOW = request_checks.DirectResponse(408, SENTENCES[408], close=True)
_SHUTTING_DOWN = request_checks.DirectResponse(503, SENTENCES[503], close=True, headers=((b"retry-after", b"1"),))
_PREFLIGHT = (
    (b"access-control-allow-headers", b"Authorization, Content-Type, DPoP, MCP-Protocol-Version, X-Device-Id, X-Request-Id"),
    (b"access-control-max-age", b"600"),
)
_EXPOSED = (b"access-control-expose-headers", b"X-Request-Id, Retry-After, X-Total-Count, WWW-Authenticate, DPoP-Nonce")
