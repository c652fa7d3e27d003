"""The edge middleware alone, called as an ASGI application without a socket."""

import json
import re
from collections.abc import Callable
from datetime import datetime
from ipaddress import ip_network
from typing import Any
from urllib.parse import quote, unquote

import trio
import trio.testing

from entrypoints.http.base.request_record import RequestRecord
from entrypoints.http.edge.middleware import App, EdgeMiddleware, EdgeOptions, Headers, Message, Receive, Send
from entrypoints.http.edge.protocol.request_checks import DirectResponse, Scope
from tests.proof.wire.wire import Paths
from tests.tables import table

FRONTEND = "https://app.example"

PATHS = Paths(
    {
        "/api/user": {"GET", "PATCH"},
        "/api/auth/login": {"POST"},
        "/auth/token": {"POST"},
        "/auth/verify-email": {"GET"},
        "/docs": {"GET"},
    },
    changing={"/auth/verify-email"},
    any_origin={"/auth/token"},
)


class RecordingApp:
    """An application that records its requests and sends the responses that a test sets."""

    def __init__(self, *headers: tuple[bytes, bytes], status: int = 200, body: bytes = b"{}") -> None:
        self.headers = list(headers) or [(b"content-type", b"application/json")]
        self.status = status
        self.body = body
        self.scopes: list[Scope] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scopes.append(scope)
        await send({"type": "http.response.start", "status": self.status, "headers": self.headers})
        await send({"type": "http.response.body", "body": self.body})


class Answer:
    def __init__(self, sent: list[Message], record: RequestRecord | None) -> None:
        self.sent = sent
        self.record = record
        self.status = sent[0]["status"] if sent else None
        self.list: list[tuple[str, str]] = [(name.decode(), value.decode()) for name, value in sent[0]["headers"]] if sent else []
        self.headers = dict(self.list)
        self.body = b"".join(message.get("body", b"") for message in sent[1:])

    @property
    def error(self) -> tuple[int, str]:
        return self.status or 0, json.loads(self.body)["error_code"]


async def ask(
    app: App,
    method: str = "GET",
    path: str = "/api/user",
    *headers: tuple[str, str],
    query: str = "",
    raw_path: bytes | None = None,
    version: str = "1.1",
    client: str = "198.51.100.7",
    receive: Receive | None = None,
    **options: Any,
) -> Answer:
    observed: list[RequestRecord] = []
    sent: list[Message] = []
    settings: dict[str, Any] = {"body_limit": lambda _: 1000, "cors_origin": FRONTEND, **options}
    middleware = EdgeMiddleware(app, routes=PATHS, observe=observed.append, options=EdgeOptions(**settings))

    async def nothing() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "http_version": version,
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": raw_path if raw_path is not None else path.encode(),
        "query_string": query.encode(),
        "headers": [(b"host", b"test"), *((name.encode(), value.encode("latin-1")) for name, value in headers)],
        "client": (client, 50000),
    }
    await middleware(scope, receive or nothing, send)
    assert len(observed) == 1, "every request is observed exactly once"
    return Answer(sent, observed[0])


# Headers in every response


async def test_every_response_has_the_security_headers() -> None:
    answer = await ask(RecordingApp())
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"
    assert "strict-transport-security" not in answer.headers
    assert answer.body == b"{}"


async def test_strict_transport_security_is_sent_exactly_with_https() -> None:
    assert "max-age=" in (await ask(RecordingApp(), https=True)).headers["strict-transport-security"]


@table(
    "own",
    [(b"cache-control", b"public, max-age=300"), (b"referrer-policy", b"origin"), (b"content-security-policy", b"default-src 'self'")],
)
async def test_headers_of_the_application_stay(own: tuple[bytes, bytes]) -> None:
    answer = await ask(RecordingApp(own))
    assert [value for name, value in answer.list if name == own[0].decode()] == [own[1].decode()]


async def test_a_page_sets_its_own_content_security_policy() -> None:
    assert "content-security-policy" not in (await ask(RecordingApp((b"content-type", b"text/html; charset=utf-8")))).headers


async def test_the_application_completes_the_request_record_of_the_scope() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scope["request_record"].route = "/api/user"
        scope["request_record"].caller = "ada"
        await RecordingApp(status=418)(scope, receive, send)

    record = (await ask(app, monotonic=iter([10.0, 12.5]).__next__)).record
    assert record is not None
    assert (record.route, record.caller, record.status, record.duration) == ("/api/user", "ada", 418, 2.5)
    assert (record.method, record.path, record.address, record.aborted) == ("GET", "/api/user", "198.51.100.7", False)


async def test_unknown_paths_and_odd_methods_share_one_label() -> None:
    record = (await ask(RecordingApp(status=404), "BREW", "/coffee")).record
    assert record is not None
    assert (record.route, record.method) == ("(unknown)", "OTHER")


@table("offered", ["abcdefgh", "A-z_0.9" * 9, "f" * 64])
async def test_a_harmless_request_id_is_kept(offered: str) -> None:
    answer = await ask(RecordingApp(), "GET", "/api/user", ("x-request-id", offered))
    assert answer.headers["x-request-id"] == offered
    assert answer.record is not None
    assert answer.record.request_id == offered


@table("offered", [None, "", "short", "f" * 65, "with space", "semi;colon", "<script>x", "caf\xe9caf\xe9", "line\nbreak"])
async def test_other_request_ids_are_replaced(offered: str | None) -> None:
    headers = [] if offered is None else [("x-request-id", offered)]
    first, second = [(await ask(RecordingApp(), "GET", "/api/user", *headers)).headers["x-request-id"] for _ in range(2)]
    assert first != second
    assert re.fullmatch(r"[A-Za-z0-9_-]{8,64}", first)


async def test_the_address_is_read_from_all_headers_of_a_trusted_proxy() -> None:
    proxies = (ip_network("10.0.0.0/8"),)
    lines = [("x-forwarded-for", "203.0.113.9"), ("x-forwarded-for", "203.0.113.5"), ("x-forwarded-for", "10.0.0.2")]
    trusting = await ask(RecordingApp(), "GET", "/api/user", *lines, client="10.0.0.1", trusted_proxies=proxies)
    wary = await ask(RecordingApp(), "GET", "/api/user", *lines, client="10.0.0.1")
    assert trusting.record is not None
    assert wary.record is not None
    assert (trusting.record.address, wary.record.address) == ("203.0.113.5", "10.0.0.1")


# Refusals


async def test_a_refusal_has_the_standard_error_body() -> None:
    answer = await ask(RecordingApp(), version="2")
    body = json.loads(answer.body)
    assert body.keys() == {"error", "error_code", "timestamp"}
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["content-length"] == str(len(answer.body))
    assert body["timestamp"].endswith("Z")
    assert datetime.fromisoformat(body["timestamp"]).utcoffset() is not None
    assert {"x-request-id", "x-content-type-options", "cache-control"} <= answer.headers.keys()
    assert answer.record is not None
    assert (answer.record.status, answer.record.error_code) == (505, "HTTP_VERSION_NOT_SUPPORTED")


async def test_the_application_can_render_errors_itself() -> None:
    def render(error: DirectResponse, record: RequestRecord, accept: str | None) -> tuple[Headers, bytes]:
        return [(b"content-type", b"text/x")], f"{error.status} {record.path} {accept}".encode()

    answer = await ask(RecordingApp(), "CONNECT", "/scim/v2/Users", ("accept", "text/x"), render_error=render)
    assert (answer.headers["content-type"], answer.body) == ("text/x", b"405 /scim/v2/Users text/x")


REFUSED: list[tuple[str, str, list[tuple[str, str]], tuple[int, str], bool]] = [
    ("both lengths", "1.1", [("content-length", "3"), ("transfer-encoding", "chunked")], (400, "BAD_REQUEST"), True),
    ("the other way round", "1.1", [("transfer-encoding", "chunked"), ("content-length", "3")], (400, "BAD_REQUEST"), True),
    ("chunks in HTTP/1.0", "1.0", [("transfer-encoding", "chunked")], (400, "BAD_REQUEST"), True),
    ("two lengths", "1.1", [("content-length", "3"), ("content-length", "4")], (400, "BAD_REQUEST"), True),
    ("two tokens", "1.1", [("authorization", "Bearer a"), ("authorization", "Bearer b")], (400, "BAD_REQUEST"), False),
    ("two types", "1.1", [("content-type", "application/json"), ("content-type", "text/plain")], (400, "BAD_REQUEST"), False),
    ("two keys", "1.1", [("x-api-key", "a"), ("x-api-key", "a")], (400, "BAD_REQUEST"), False),
    ("two signatures", "1.1", [("billing-signature", "a"), ("billing-signature", "b")], (400, "BAD_REQUEST"), False),
    ("two of the other name", "1.1", [("stripe-signature", "a"), ("stripe-signature", "b")], (400, "BAD_REQUEST"), False),
    ("HTTP/2", "2", [], (505, "HTTP_VERSION_NOT_SUPPORTED"), True),
    ("HTTP/2 with prior knowledge", "2.0", [], (505, "HTTP_VERSION_NOT_SUPPORTED"), True),
    ("HTTP/0.9", "0.9", [], (505, "HTTP_VERSION_NOT_SUPPORTED"), True),
    ("large headers", "1.1", [("x-filler", "x" * 16384)], (431, "REQUEST_HEADER_FIELDS_TOO_LARGE"), True),
    ("many headers", "1.1", [("x-filler", "x" * 20)] * 512, (431, "REQUEST_HEADER_FIELDS_TOO_LARGE"), True),
    ("a large body", "1.1", [("content-length", "1001")], (413, "PAYLOAD_TOO_LARGE"), True),
    ("a huge body", "1.1", [("content-length", "9" * 20)], (413, "PAYLOAD_TOO_LARGE"), True),
]


@table(("version", "headers", "error", "close"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
async def test_malformed_requests_are_refused_before_the_application_runs(
    version: str, headers: list[tuple[str, str]], error: tuple[int, str], close: bool
) -> None:
    app = RecordingApp()
    answer = await ask(app, "POST", "/api/auth/login", *headers, version=version)
    assert answer.error == error
    assert (answer.headers.get("connection") == "close") is close
    assert app.scopes == []


async def test_connect_is_refused_with_the_allowed_methods() -> None:
    app = RecordingApp()
    answer = await ask(app, "CONNECT", "example.com:443")
    assert answer.error == (405, "METHOD_NOT_ALLOWED")
    assert "GET" in answer.headers["allow"]
    assert app.scopes == []


@table("path", ["/api/\x00", "/api/a\nb", "/api/\u202euser", "/api/\x85"])
async def test_a_path_with_control_characters_is_not_found(path: str) -> None:
    app = RecordingApp()
    answer = await ask(app, "GET", path)
    assert answer.error == (404, "NOT_FOUND")
    assert app.scopes == []


async def test_a_websocket_is_closed() -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def never() -> Message:
        raise AssertionError

    await EdgeMiddleware(RecordingApp(), routes=PATHS, observe=lambda _: None, options=EdgeOptions(body_limit=lambda _: 0))(
        {"type": "websocket"}, never, send
    )
    assert [message["type"] for message in sent] == ["websocket.close"]


# Paths


@table(
    ("raw", "path"),
    [
        (b"/", "/"),
        (b"/api/user", "/api/user"),
        (b"/api/user/", "/api/user"),
        (b"/api/user//", "/api/user//"),  # a doubled slash is another path, which does not exist
        (b"//api/user", "//api/user"),
        (b"//", "//"),
        (b"/caf%C3%A9/", "/café"),
        (b"http://test/api/user", "/api/user"),
        (b"HTTP://TEST/api/user/", "/api/user"),
        (b"http://test", "/"),
    ],
)
async def test_the_path_is_normalized_for_the_routes(raw: bytes, path: str) -> None:
    app = RecordingApp()
    await ask(app, "GET", unquote(raw.decode()), raw_path=raw, query="a=/")
    assert app.scopes[0]["path"] == path
    assert app.scopes[0]["raw_path"] in (quote(path).encode(), raw)
    assert unquote(app.scopes[0]["raw_path"].decode()) == path
    assert app.scopes[0]["query_string"] == b"a=/"


@table("raw", [b"http://elsewhere/api/user", b"http://a@test/api/user", b"ftp://test/api/user", b"api/user", b"*", b"test:80"])
async def test_a_target_that_is_not_a_path_is_refused(raw: bytes) -> None:
    app = RecordingApp()
    assert (await ask(app, "GET", raw.decode(), raw_path=raw)).error == (400, "BAD_REQUEST")
    assert app.scopes == []


@table("raw", [b"/api%2fuser", b"/api/user%2F", b"/%2F", b"/api/organizations/acme%2Fmembers"])
async def test_an_encoded_slash_is_not_a_separator(raw: bytes) -> None:
    app = RecordingApp()
    assert (await ask(app, "GET", unquote(raw.decode()), raw_path=raw)).error == (404, "NOT_FOUND")
    assert app.scopes == []


# OPTIONS, HEAD, CORS


async def test_options_lists_the_allowed_methods_and_runs_no_view() -> None:
    app = RecordingApp()
    answer = await ask(app, "OPTIONS", "/api/user/")
    assert (answer.status, answer.headers["allow"], answer.body) == (204, "GET, HEAD, OPTIONS, PATCH", b"")
    assert (await ask(app, "OPTIONS", "/api/auth/login")).headers["allow"] == "OPTIONS, POST"
    assert (await ask(app, "OPTIONS", "*")).status == 204
    assert app.scopes == []


async def test_options_of_an_unknown_path_reaches_the_application() -> None:
    app = RecordingApp(status=404)
    assert (await ask(app, "OPTIONS", "/nowhere")).status == 404
    assert len(app.scopes) == 1


async def test_head_does_not_run_views_with_side_effects() -> None:
    app = RecordingApp()
    answer = await ask(app, "HEAD", "/auth/verify-email/", query="token=x")
    assert (answer.status, answer.body, app.scopes) == (200, b"", [])
    assert (await ask(app, "HEAD", "/api/user")).status == 200
    assert (await ask(app, "GET", "/auth/verify-email")).status == 200
    assert [scope["method"] for scope in app.scopes] == ["HEAD", "GET"]


PREFLIGHT = ("access-control-request-method", "PATCH")


@table("path", ["/api/user", "/api/auth/login"])
async def test_the_frontend_can_read_api_responses(path: str) -> None:
    answer = await ask(RecordingApp(status=401), "POST", path, ("origin", FRONTEND))
    assert answer.headers["access-control-allow-origin"] == FRONTEND
    assert answer.headers["access-control-expose-headers"] == "X-Request-Id, Retry-After, X-Total-Count, WWW-Authenticate, DPoP-Nonce"
    assert answer.headers["vary"] == "Origin"
    assert "access-control-allow-credentials" not in answer.headers


async def test_the_frontend_can_send_a_preflight() -> None:
    app = RecordingApp()
    answer = await ask(app, "OPTIONS", "/api/user", ("origin", FRONTEND), PREFLIGHT)
    assert answer.status == 204
    assert answer.headers["access-control-allow-origin"] == FRONTEND
    assert answer.headers["access-control-allow-methods"] == "GET, HEAD, OPTIONS, PATCH"
    assert (
        answer.headers["access-control-allow-headers"]
        == "Authorization, Content-Type, DPoP, MCP-Protocol-Version, X-Device-Id, X-Request-Id"
    )
    assert app.scopes == []


@table("origin", ["https://app.example.evil", "http://app.example", "null", "https://APP.example", f"{FRONTEND}/"])
async def test_other_origins_get_no_cors_headers(origin: str) -> None:
    for method in ("GET", "OPTIONS"):
        answer = await ask(RecordingApp(), method, "/api/user", ("origin", origin), PREFLIGHT)
        assert not [name for name in answer.headers if name.startswith("access-control-")]
        assert answer.headers["vary"] == "Origin"


@table(("path", "frontend"), [("/docs", FRONTEND), ("/auth/verify-email", FRONTEND), ("/apiary", FRONTEND), ("/api/user", None)])
async def test_pages_and_installations_without_a_frontend_have_no_cors_headers(path: str, frontend: str | None) -> None:
    for method in ("GET", "OPTIONS"):
        answer = await ask(RecordingApp(), method, path, ("origin", FRONTEND), PREFLIGHT, cors_origin=frontend)
        assert not [name for name in answer.headers if name.startswith("access-control-") or name == "vary"]


@table("frontend", [FRONTEND, None])
async def test_scripts_of_every_origin_can_read_marked_routes(frontend: str | None) -> None:
    """Middleware errors and preflights have the same headers, and nothing depends on the origin."""
    app = RecordingApp(status=401)
    for headers in ((), (("origin", "https://shop.example"),), (("origin", "null"),)):
        for answer in (
            await ask(app, "POST", "/auth/token", *headers, cors_origin=frontend),
            await ask(app, "POST", "/auth/token", *headers, ("content-length", "99999999"), cors_origin=frontend),
            await ask(app, "OPTIONS", "/auth/token", *headers, ("access-control-request-method", "POST"), cors_origin=frontend),
        ):
            assert answer.headers["access-control-allow-origin"] == "*"
            assert not {"access-control-allow-credentials", "vary"} & set(answer.headers)
    assert answer.headers["access-control-allow-headers"].startswith("Authorization, Content-Type")


async def test_the_vary_header_of_the_application_is_kept() -> None:
    answer = await ask(RecordingApp((b"vary", b"Accept")), "GET", "/api/user", ("origin", FRONTEND))
    assert [value for name, value in answer.list if name == "vary"] == ["Accept", "Origin"]


# Bodies


def arriving(*messages: Message, then: Callable[[], Any] = trio.sleep_forever) -> Receive:
    """Receive these messages, and then `last`, or wait forever."""
    waiting = iter(messages)

    async def receive() -> Message:
        for message in waiting:
            return message
        await then()
        return {"type": "http.disconnect"}

    return receive


def piece(body: bytes, *, last: bool = False) -> Message:
    return {"type": "http.request", "body": body, "more_body": not last}


class Reader(RecordingApp):
    """Read the whole body first, and return without a response when the client disconnects, as
    Quart does."""

    read = b""
    cancelled = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            more = True
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return
                self.read += message["body"]
                more = message["more_body"]
        except trio.Cancelled:
            self.cancelled = True
            raise
        await super().__call__(scope, receive, send)


async def test_a_body_passes_piece_by_piece() -> None:
    app = Reader()
    answer = await ask(
        app,
        "POST",
        "/api/user",
        ("transfer-encoding", "chunked"),
        receive=arriving(piece(b"x" * 600), piece(b"y" * 400), piece(b"", last=True)),
    )
    assert (answer.status, app.read) == (200, b"x" * 600 + b"y" * 400)


async def test_a_chunked_body_is_cut_off_at_the_limit() -> None:
    app = Reader()
    answer = await ask(app, "POST", "/api/user", ("transfer-encoding", "chunked"), receive=arriving(piece(b"x" * 600), piece(b"y" * 401)))
    assert answer.error == (413, "PAYLOAD_TOO_LARGE")
    assert answer.headers["connection"] == "close"
    assert app.cancelled


async def test_a_body_must_arrive_within_thirty_seconds(autojump_clock: trio.testing.MockClock) -> None:
    app = Reader()
    started = trio.current_time()
    answer = await ask(app, "POST", "/api/user", ("content-length", "10"), receive=arriving(piece(b"x")))
    assert answer.error == (408, "REQUEST_TIMEOUT")
    assert answer.headers["connection"] == "close"
    assert trio.current_time() - started == 30
    assert app.cancelled


async def test_the_application_can_take_longer_than_the_body(autojump_clock: trio.testing.MockClock) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await trio.sleep(3600)
        await RecordingApp()(scope, receive, send)

    assert (await ask(app, "POST", "/api/user", ("content-length", "1"), receive=arriving(piece(b"x", last=True)))).status == 200


# Disconnecting clients


class Watching(RecordingApp):
    """Watch for a disconnect while working, as Quart-Trio does. The disconnect cancels the work."""

    completed = False
    cancelled = False

    def __init__(self, work: Callable[[], Any]) -> None:
        super().__init__()
        self.work = work

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with trio.open_nursery() as nursery:

            async def watch() -> None:
                while (await receive())["type"] != "http.disconnect":
                    pass
                nursery.cancel_scope.cancel()

            nursery.start_soon(watch)
            try:
                await self.work()
                await super().__call__(scope, receive, send)
            except trio.Cancelled:
                self.cancelled = True
                raise
            self.completed = True
            nursery.cancel_scope.cancel()


async def test_a_disconnect_after_the_body_does_not_cancel_the_work() -> None:
    app = Watching(trio.testing.wait_all_tasks_blocked)
    answer = await ask(app, receive=arriving(piece(b"", last=True), then=trio.lowlevel.checkpoint))
    assert app.completed
    assert answer.record is not None
    assert (answer.record.status, answer.record.aborted) == (200, True)


async def test_a_disconnect_before_the_end_of_the_body_cancels_the_work() -> None:
    app = Watching(trio.sleep_forever)
    answer = await ask(app, "POST", "/api/user", ("content-length", "5"), receive=arriving(piece(b"x"), then=trio.lowlevel.checkpoint))
    assert app.cancelled
    assert answer.sent == []
    assert answer.record is not None
    assert (answer.record.status, answer.record.aborted) == (499, True)


async def test_the_end_of_a_response_is_not_a_disconnect() -> None:
    """A server sends http.disconnect when a response ends, while its last part is still being sent."""
    over = trio.Event()
    sent: list[Message] = []
    observed: list[RequestRecord] = []
    app = Watching(trio.lowlevel.checkpoint)

    async def send(message: Message) -> None:
        sent.append(message)
        if message["type"] == "http.response.body":
            over.set()
            await trio.testing.wait_all_tasks_blocked()  # other tasks see the disconnect before this call returns
            sent.append({"type": "done"})

    middleware = EdgeMiddleware(app, routes=PATHS, observe=observed.append, options=EdgeOptions(body_limit=lambda _: 1000))
    scope: Scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": "/",
        "raw_path": b"/",
        "query_string": b"",
        "headers": [],
        "client": None,
    }
    await middleware(scope, arriving(piece(b"", last=True), then=over.wait), send)
    assert sent[-1] == {"type": "done"}
    assert app.completed
    assert not observed[0].aborted


# Failing applications


async def test_an_application_that_fails_gets_a_500() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise ZeroDivisionError("secret of the house")

    answer = await ask(app)
    assert answer.error == (500, "INTERNAL_SERVER_ERROR")
    assert b"secret" not in answer.body
    assert answer.record is not None
    assert isinstance(answer.record.error, ZeroDivisionError)


async def test_an_application_that_fails_during_the_response_is_recorded() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise ZeroDivisionError

    answer = await ask(app)
    assert len(answer.sent) == 1
    assert answer.record is not None
    assert isinstance(answer.record.error, ZeroDivisionError)


async def test_an_application_without_a_response_gets_a_500() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        pass

    assert (await ask(app)).error == (500, "INTERNAL_SERVER_ERROR")


@table("nested", [False, True])
async def test_a_request_canceled_by_shutdown_gets_a_503(nested: bool) -> None:
    answers: list[Message] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if not nested:
            await trio.sleep_forever()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            nursery.start_soon(trio.sleep_forever)

    async def send(message: Message) -> None:
        answers.append(message)

    observed: list[RequestRecord] = []
    middleware = EdgeMiddleware(app, routes=PATHS, observe=observed.append, options=EdgeOptions(body_limit=lambda _: 1000))
    scope: Scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": "/",
        "raw_path": b"/",
        "query_string": b"",
        "headers": [],
        "client": None,
    }
    with trio.CancelScope() as scope_of_server:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(middleware, scope, arriving(), send)
            await trio.testing.wait_all_tasks_blocked()
            scope_of_server.cancel()
    assert answers[0]["status"] == 503
    assert [record.status for record in observed] == [503]


async def test_lifespan_messages_reach_the_application() -> None:
    seen: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope["type"])

    async def nothing(message: Message | None = None) -> Any:
        return {}

    await EdgeMiddleware(app, routes=PATHS, observe=lambda _: None, options=EdgeOptions(body_limit=lambda _: 0))(
        {"type": "lifespan"}, nothing, nothing
    )
    assert seen == ["lifespan"]
