"""Dispatching requests: the parts of Quart that are left out, and the parts that must still work."""

from collections.abc import Sequence
from typing import Any

import pytest
import trio
from quart import Response, has_app_context, has_request_context, request
from quart_trio import QuartTrio

from entrypoints.http.edge.access import anyone
from entrypoints.http.edge.dispatch import LONGEST_KEPT_PATH, LeanQuart, check_hooks
from tests.support.direct import PATIENCE, PEER, ask
from tests.tables import table


def add_routes(app: QuartTrio) -> None:
    @anyone
    async def remote() -> Response:
        return Response(f"{request.remote_addr} {request.headers['X-Test']}")

    @anyone
    async def text() -> str:
        return "text"

    @anyone
    async def length(text: str) -> str:
        (request.view_args or {}).clear()
        return str(len(text))

    app.add_url_rule("/api/test/length/<text>", "test_length", length)
    app.add_url_rule("/api/test/remote", "test_remote", remote)
    app.add_url_rule("/api/test/text", "test_text", text)


@table("kind", ["before_request", "after_request", "teardown_request", "url_value_preprocessor"])
def test_functions_that_would_not_be_called_are_refused(kind: str) -> None:
    app = LeanQuart(__name__, static_folder=None)
    check_hooks(app)
    getattr(app, kind)(lambda *_: None)
    with pytest.raises(ValueError, match=kind):
        check_hooks(app)


async def test_a_client_cannot_set_its_remote_address(app: QuartTrio) -> None:
    headers = [(b"remote-addr", b"192.0.2.1"), (b"x-test", "\u00e9".encode("latin-1"))]
    assert (await ask(app, "GET", "/api/test/remote", headers=headers)).text == f"{PEER} \u00e9"


async def test_a_view_can_return_what_quart_accepts(app: QuartTrio) -> None:
    assert (await ask(app, "GET", "/api/test/text")).text == "text"


@pytest.mark.parametrize("size", [1, LONGEST_KEPT_PATH, 2000])
async def test_a_path_of_any_length_is_matched_each_time(app: QuartTrio, size: int) -> None:
    for _ in range(2):
        assert (await ask(app, "GET", f"/api/test/length/{'x' * size}")).text == str(size)
    assert (await ask(app, "POST", f"/api/test/length/{'x' * size}")).status == 405


@pytest.mark.parametrize("path", ["/api/test/text", "/api/nothing", "/api/user"])
async def test_no_context_is_left_after_a_request(app: QuartTrio, path: str) -> None:
    await ask(app, "GET", path)
    assert not has_request_context()
    assert not has_app_context()


async def exchange(app: QuartTrio, method: str, path: str, *headers: tuple[bytes, bytes], received: Sequence[Any] = ()) -> list[Any]:
    """Return the messages that the application sends."""
    incoming, sent = iter(received), list[Any]()

    async def receive() -> Any:
        for message in incoming:
            return message
        await trio.sleep_forever()
        raise AssertionError

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http", "http_version": "1.1", "asgi": {"version": "3.0"}, "method": method, "scheme": "http", "path": path,
        "raw_path": path.encode(), "query_string": b"", "root_path": "", "headers": headers, "client": None, "server": None,
    }  # fmt: skip
    await app.asgi_app(scope, receive, send)  # type: ignore[arg-type]
    return sent


async def test_a_body_in_memory_is_one_message(app: QuartTrio) -> None:
    sent = await exchange(app, "GET", "/health")
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]


async def test_a_request_ends_if_its_client_disconnects_before_the_end_of_the_body(app: QuartTrio) -> None:
    headers = ((b"content-length", b"9"), (b"content-type", b"application/json"))
    pieces = [{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}]
    with trio.fail_after(PATIENCE):
        assert await exchange(app, "POST", "/api/auth/login", *headers, received=pieces) == []
