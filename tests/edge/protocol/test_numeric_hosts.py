"""Pages at 127.0.0.1 and [::1] redirect to `localhost`, if that is the host in the base URL."""

import pytest
from quart_trio import QuartTrio

from tests.support.direct import ask

NUMERIC = (b"127.0.0.1:8080", b"[::1]:8080")
HTML = (b"accept", b"text/html,application/xhtml+xml,*/*;q=0.8")
JSON = (b"accept", b"application/json")
FORM = (b"content-type", b"application/x-www-form-urlencoded")
PAGES = (
    "/",
    "/app",
    "/app/sign-in",
    "/app/account?notice=%C3%A9",
    "/auth/authorize?client_id=1&redirect_uri=http%3A%2F%2Flocalhost%2Fcallback",
    "/auth/websuite/callback?state=a&code=b",
    "/auth/recover-owner?token=secret",
    "/docs",
    "/docs/guides/webhooks",
)


at_localhost = pytest.mark.parametrize("edge", [{"base_url": "http://localhost:8080"}], indirect=True)


@at_localhost
@pytest.mark.parametrize("host", NUMERIC)
async def test_pages_redirect_to_the_same_path_at_the_base_url(app: QuartTrio, host: bytes) -> None:
    for path in PAGES:
        answer = await ask(app, "GET", path, host=host, headers=[HTML])
        assert (answer.status, answer.headers["Location"]) == (303, f"http://localhost:8080{path}"), path
        assert "Set-Cookie" not in answer.headers
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.text == ""


@at_localhost
async def test_a_trailing_slash_and_a_doubled_one_lead_to_no_other_host(app: QuartTrio) -> None:
    answer = await ask(app, "GET", "/app/", host=NUMERIC[0], headers=[HTML])
    assert answer.headers["Location"] == "http://localhost:8080/app"
    for path in ("//evil.example", "//evil.example/app", "/app/%2f%2fevil.example", "/no-such-page"):
        answer = await ask(app, "GET", path, host=NUMERIC[0], headers=[HTML])
        assert (answer.status, "Location" in answer.headers) == (404, False), path


@at_localhost
@pytest.mark.parametrize("host", NUMERIC)
async def test_only_pages_that_a_browser_opens_redirect(app: QuartTrio, host: bytes) -> None:
    """A program that calls the API, follows an emailed link or checks the health gets its answer, and a form is never sent twice."""
    for path, headers in (
        ("/api/user", [HTML]),
        ("/auth/userinfo", [HTML]),
        ("/health/live", [HTML]),
        ("/.well-known/openid-configuration", [HTML]),
        ("/scim/v2/Users", [HTML]),
        ("/openapi.json", [HTML]),
        ("/app/account", [JSON]),
        ("/auth/verify-email?token=x", [JSON]),
    ):
        answer = await ask(app, "GET", path, host=host, headers=headers)
        assert not answer.headers.get("Location", "").startswith("http"), path
    for path in ("/app/sign-in", "/auth/token", "/auth/recover-owner"):
        answer = await ask(app, "POST", path, host=host, headers=[HTML, FORM], body=b"")
        assert not answer.headers.get("Location", "").startswith("http"), path


@at_localhost
@pytest.mark.parametrize(
    "host",
    [b"localhost:8080", b"127.0.0.1", b"127.0.0.1:8081", b"127.0.0.2:8080", b"[::2]:8080", b"::1:8080", b"192.0.2.1:8080", b"evil.example"],
)
async def test_other_hosts_are_served_as_before(app: QuartTrio, host: bytes) -> None:
    answer = await ask(app, "GET", "/app/sign-in", host=host, headers=[HTML])
    assert (answer.status, "Location" in answer.headers) == (200, False)


@pytest.mark.parametrize(
    ("edge", "host", "redirects"),
    [
        ({"base_url": "http://localhost"}, b"127.0.0.1", True),
        ({"base_url": "http://localhost"}, b"127.0.0.1:8080", False),
        ({"base_url": "https://localhost:8443"}, b"[::1]:8443", True),
        ({"base_url": "http://127.0.0.1:8080"}, b"127.0.0.1:8080", False),
        ({"base_url": "http://127.0.0.1:8080"}, b"[::1]:8080", False),
        ({"base_url": "https://id.example.com"}, b"127.0.0.1", False),
    ],
    indirect=["edge"],
)
async def test_only_a_base_url_at_localhost_has_such_hosts(app: QuartTrio, host: bytes, redirects: bool) -> None:
    """An existing installation at 127.0.0.1 keeps its address."""
    answer = await ask(app, "GET", "/app/sign-in", host=host, headers=[HTML])
    assert answer.status == (303 if redirects else 200)
