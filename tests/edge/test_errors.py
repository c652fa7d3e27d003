"""The standard error body, its statuses and codes, and no internal details in it (security N-8)."""

import importlib
import json
import pkgutil
import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

import psycopg.errors
import pytest
from quart_trio import QuartTrio
from structlog.testing import capture_logs

import core
from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.accounts import accounts
from core.accounts.model import accounts as accounts_model
from core.kernel.errors import (
    Conflict,
    Forbidden,
    Invalid,
    Limited,
    NotFound,
    Outage,
    PaymentsFailed,
    PreconditionFailed,
    ProviderFailed,
    Refusal,
    StorageDown,
    Unauthenticated,
    Unsupported,
)
from core.kernel.page_paths import ACCOUNT_PATH, SIGN_IN_PATH
from core.kernel.policy import SupportContact
from entrypoints.http.app import Application, Edge, configure
from entrypoints.http.base.redirects import PAGE_ATTRIBUTE
from entrypoints.http.edge.access.declaration import Credentials, access_of
from entrypoints.http.edge.openapi import docs_of
from ports import Ports
from tests.fakes.outside import FakeMailTransport
from tests.proof.access.calls import routes
from tests.support.builders import PASSWORD, Api, add_account, deliver, link, make_vault
from tests.support.direct import ask, change_ports

if TYPE_CHECKING:
    from entrypoints.http.base.request_record import RequestRecord


def family(kind: type[Exception]) -> set[type[Exception]]:
    for module in pkgutil.iter_modules(core.__path__, "core."):
        importlib.import_module(module.name)
    return {kind, *(descendant for child in kind.__subclasses__() for descendant in family(child))}


def test_every_refusal_has_a_kind() -> None:
    kinds = {Invalid, Unauthenticated, Forbidden, NotFound, Conflict, PreconditionFailed, Limited, Unsupported}
    for refusal in family(Refusal) - {Refusal}:
        assert kinds & set(refusal.__mro__), refusal


# The response


def failing_with(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Make POST /api/auth/forgot-password fail in the use case."""

    async def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(accounts, "forgot_password", fail)


async def ask_for_failure(api: Api, **options: Any) -> Any:
    return await api.post("/api/auth/forgot-password", {"email": "ada@example.com"}, **options)


def defect() -> Exception:
    try:
        secret = "hunter2"  # a local variable in the frame that fails
        raise KeyError("select password_hash from users", secret)
    except KeyError as error:
        return error


UNEXPECTED: dict[str, Exception] = {
    "a defect": defect(),
    "an integrity error": psycopg.errors.UniqueViolation('duplicate key value violates unique constraint "users_pkey"'),
    "a defect in SQL": psycopg.errors.UndefinedTable('relation "users" does not exist'),
    "a group of one": ExceptionGroup("nursery", [defect()]),
    "a group of many": ExceptionGroup("nursery", [defect(), Conflict()]),
    "recursion": RecursionError("maximum recursion depth exceeded"),
    "memory": MemoryError(),
    "an assertion": AssertionError("internal"),
    "a bare refusal": ValueError("x" * 10_000),
}


@pytest.mark.parametrize("name", UNEXPECTED)
async def test_unexpected_errors_are_reported_without_details(api: Api, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    failing_with(monkeypatch, UNEXPECTED[name])
    with capture_logs() as logs:
        answer = await ask_for_failure(api, headers={"X-Request-Id": "request-12345"})
    assert (answer.status, answer.code) == (500, "INTERNAL_SERVER_ERROR")
    assert answer.headers["X-Request-Id"] == "request-12345"
    assert answer.json["error"] == (
        "Something went wrong on our side. Try again. If it keeps happening, report it with the request id request-12345."
    )
    [logged] = [entry for entry in logs if entry["log_level"] == "error"]
    assert logged["exc_info"] is not None


async def test_a_refusal_in_a_nursery_is_still_a_refusal(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    failing_with(monkeypatch, ExceptionGroup("outer", [ExceptionGroup("inner", [accounts_model.PasswordTooCommon()])]))
    answer = await ask_for_failure(api)
    assert (answer.status, answer.code) == (400, "BAD_REQUEST")
    assert answer.json["error"] == accounts_model.PasswordTooCommon.__doc__


async def test_a_lost_database_is_reported_with_retry_after(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    error = StorageDown()
    error.__cause__ = psycopg.OperationalError('connection to server at "10.0.0.5", port 5432 failed: password authentication failed')
    failing_with(monkeypatch, error)
    with capture_logs() as logs:
        answer = await ask_for_failure(api)
    assert (answer.status, answer.code) == (500, "DATABASE_ERROR")
    assert int(answer.headers["Retry-After"]) >= 1
    assert "10.0.0.5" not in answer.text
    assert any("10.0.0.5" in str(entry) for entry in logs)


@pytest.mark.parametrize("outage", [ProviderFailed, PaymentsFailed])
async def test_other_outages_keep_their_code(api: Api, monkeypatch: pytest.MonkeyPatch, outage: type[Outage]) -> None:
    failing_with(monkeypatch, outage("token endpoint said: invalid_client secret=hunter2"))
    with capture_logs() as logs:
        answer = await ask_for_failure(api)
    assert (answer.status, answer.code) == (500, outage.code)
    assert "hunter2" not in answer.text
    assert logs


@pytest.mark.parametrize(("wait", "retry_after"), [(0.0, "1"), (0.2, "1"), (1.0, "1"), (1.001, "2"), (29.5, "30"), (-5, "1")])
async def test_retry_after_is_rounded_up_to_whole_seconds(api: Api, monkeypatch: pytest.MonkeyPatch, wait: float, retry_after: str) -> None:
    failing_with(monkeypatch, Limited(wait))
    answer = await ask_for_failure(api)
    assert (answer.status, answer.code, answer.headers["Retry-After"]) == (429, "RATE_LIMIT_EXCEEDED", retry_after)


async def test_the_timestamp_is_now_in_utc(api: Api) -> None:
    answer = await api.get("/nothing")
    timestamp = datetime.fromisoformat(answer.json["timestamp"])
    assert timestamp.utcoffset() == timedelta(0)
    assert abs(timestamp - datetime.now(UTC)) < timedelta(minutes=1)
    assert answer.headers["Content-Type"] == "application/json"


async def test_every_error_has_the_headers_of_all_responses(api: Api) -> None:
    for path in ("/nothing", "/api/user", "/invitations/accept"):
        answer = await api.get(path)
        assert answer.status >= 400
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
        assert answer.headers["X-Request-Id"]
        assert "Server" not in answer.headers
        assert "Set-Cookie" not in answer.headers


async def test_the_access_log_gets_the_code_of_a_refusal(worker_app: Application, ports: Ports, edge: Edge) -> None:
    observed: list[RequestRecord] = []
    configure(worker_app, ports, edge, observe=observed.append, exposition=lambda: b"", exposition_type="text/plain")
    assert (await ask(worker_app, "GET", "/api/user")).code == "UNAUTHORIZED"
    assert (await ask(worker_app, "GET", "/api/nothing")).code == "NOT_FOUND"
    assert (await ask(worker_app, "GET", "/health")).status == 200
    assert [(record.status, record.error_code) for record in observed] == [(401, "UNAUTHORIZED"), (404, "NOT_FOUND"), (200, None)]


# Paths and methods


@pytest.mark.parametrize(
    "path",
    ["/nothing", "/api", "/api/", "/api/nothing", "/api//user", "//api/user", "/api/user//", "/API/USER", "/api/user/x", "/static/x"],
)
async def test_an_unknown_path_is_404(app: QuartTrio, path: str) -> None:
    answer = await ask(app, "GET", path)
    assert (answer.status, answer.code) == (404, "NOT_FOUND")


async def test_one_trailing_slash_is_ignored_without_a_redirect(api: Api, ports: Ports) -> None:
    await add_account(ports)
    token = (await api.login()).json["access_token"]
    assert (await api.get("/api/user/", token=token)).status == 200
    assert (await api.get("/health/")).status == 200
    assert (await api.call("POST", "/api/auth/login/", {})).status == 400


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/api/auth/login", {"POST", "OPTIONS"}),
        ("HEAD", "/api/auth/login", {"POST", "OPTIONS"}),
        ("POST", "/api/user", {"GET", "HEAD", "PATCH", "DELETE", "OPTIONS"}),
        ("PUT", "/api/user", {"GET", "HEAD", "PATCH", "DELETE", "OPTIONS"}),
        ("POST", "/health", {"GET", "HEAD", "OPTIONS"}),
        ("TRACE", "/health", {"GET", "HEAD", "OPTIONS"}),
        ("BREW", "/auth/reset-password", {"GET", "HEAD", "POST", "OPTIONS"}),
    ],
)
async def test_a_wrong_method_is_405_with_the_allowed_ones(app: QuartTrio, method: str, path: str, allowed: set[str]) -> None:
    answer = await ask(app, method, path, headers=[(b"accept", b"application/json")])
    assert answer.status == 405
    assert {name.strip() for name in answer.headers["Allow"].split(",")} == allowed
    if method != "HEAD":
        assert answer.code == "METHOD_NOT_ALLOWED"


def as_path(rule: str) -> str:
    """Return a path that this rule matches."""
    path = rule.replace("<provider:provider>", "codehost").replace("<flow_id>", str(UUID(int=7)))
    return re.sub("<[a-z_]+>", "x", path)


def pages_elsewhere(views: Iterable[Any]) -> set[str]:
    """Return the account page, and the pages that forms below another path name."""
    return {ACCOUNT_PATH, *(as_path(page) for view in views if (page := getattr(view, PAGE_ATTRIBUTE, None)) is not None)}


async def test_the_address_of_a_form_leads_to_the_page_with_the_form(app: QuartTrio) -> None:
    """A browser opens this address if the user presses Enter in the address bar while it shows a refused form."""
    views = dict(routes(app))
    posted = {route.removeprefix("POST ") for route, view in views.items() if route.startswith("POST") and docs_of(view).is_page}
    forms = {path for path in posted if f"GET {path}" not in views}
    pages = pages_elsewhere(views.values())
    for path in (as_path(form) for form in sorted(forms)):
        answer = await ask(app, "GET", path, headers=[(b"accept", b"text/html")])
        page = answer.headers["Location"]
        assert (answer.status, path.startswith(f"{page}/") or page in pages) == (303, True), path
        assert (await ask(app, "GET", path, headers=[(b"accept", b"application/json")])).status == 405
    assert len(forms) > 50


async def test_a_form_that_is_sent_after_the_end_of_the_session_leads_back_to_its_page(app: QuartTrio) -> None:
    views = dict(routes(app))
    forms = [
        as_path(route.removeprefix("POST "))
        for route, view in views.items()
        if route.startswith("POST") and docs_of(view).is_page and access_of(view).credentials is Credentials.COOKIE
    ]
    pages = pages_elsewhere(views.values())
    for path in forms:
        answer = await ask(app, "POST", path, headers=[(b"accept", b"text/html")])
        target = urlsplit(answer.headers["Location"])
        [page] = parse_qs(target.query)["next"]
        assert (answer.status, target.path, f"{path}/".startswith(f"{page}/") or page in pages) == (303, SIGN_IN_PATH, True), path
        assert "form-not-sent" in answer.headers["Set-Cookie"]
    assert len(forms) > 100


async def test_a_wrong_method_of_an_oauth_endpoint_has_the_form_of_oauth(app: QuartTrio) -> None:
    paths = [route.partition(" ")[2] for route, view in routes(app) if docs_of(view).for_oauth]
    for path in paths:
        answer = await ask(app, "BREW", path)
        assert (answer.status, answer.json["error"], answer.code) == (405, "invalid_request", "METHOD_NOT_ALLOWED"), path
        assert answer.json["error_description"]
    assert len(paths) > 5


async def test_a_wrong_method_is_refused_before_credentials_are_checked(app: QuartTrio) -> None:
    assert (await ask(app, "POST", "/api/user")).status == 405


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/api/user", {"GET", "HEAD", "PATCH", "DELETE", "OPTIONS"}),
        ("/api/auth/login", {"POST", "OPTIONS"}),
        ("/health", {"GET", "HEAD", "OPTIONS"}),
    ],
)
async def test_options_lists_the_allowed_methods(app: QuartTrio, path: str, allowed: set[str]) -> None:
    answer = await ask(app, "OPTIONS", path)
    assert (answer.status, answer.text) == (204, "")
    assert {name.strip() for name in answer.headers["Allow"].split(",")} == allowed


async def test_options_of_an_unknown_path_is_404(app: QuartTrio) -> None:
    assert (await ask(app, "OPTIONS", "/nothing")).status == 404


async def test_head_has_the_status_and_the_headers_of_get(app: QuartTrio) -> None:
    for path in ("/health", "/openapi.json", "/docs/api", "/nothing", "/api/user"):
        got, head = await ask(app, "GET", path), await ask(app, "HEAD", path)
        assert head.status == got.status  # the server drops the body (tests/proof/wire)
        assert head.headers["Content-Type"] == got.headers["Content-Type"]


async def test_head_is_recognized_in_every_spelling_of_a_path(app: QuartTrio, api: Api, ports: Ports, sent: FakeMailTransport) -> None:
    await api.post("/api/auth/register", {"email": "ada@example.com", "password": "a good long text"})
    await deliver(ports)
    token = link(sent.emails[0])
    spellings = ["/auth/verify-email", "/auth/verify-email/", "//auth/verify-email", "///auth/verify-email", "/%61uth/verify-email"]
    spellings += ["/auth/./verify-email", "http://gatehouse.test/auth/verify-email", "http://gatehouse.test//auth/verify-email"]
    for path in spellings:
        await ask(app, "HEAD", f"{path}?token={token}")
    assert (await ask(app, "GET", f"/auth/verify-email?token={token}")).status == 200


# A page or JSON


@pytest.mark.parametrize(
    ("path", "accept", "page"),
    [
        ("/invitations/accept", None, True),
        ("/invitations/accept", "text/html,application/xhtml+xml,*/*;q=0.8", True),
        ("/invitations/accept", "*/*", True),
        ("/invitations/accept", "application/json", False),
        ("/invitations/accept", "application/json, text/html;q=0.5", False),
        ("/auth/nothing", None, True),
        ("/nothing", "text/html", True),
        ("/nothing", None, False),
        ("/nothing", "*/*", False),
        ("/api/user", "text/html", False),
        ("/api/nothing", "text/html", False),
        ("/webhooks/nothing", "text/html", False),
        ("/auth/token", "text/html", False),
        ("/auth/device/code", "text/html", False),
        ("/health/nothing", "text/html", False),
        ("/.well-known/nothing", "text/html", False),
    ],
)
async def test_browsers_get_pages_and_programs_get_json(api: Api, path: str, accept: str | None, page: bool) -> None:
    answer = await api.get(path, headers={"Accept": accept} if accept else {})
    assert answer.status >= 400
    assert answer.headers["Content-Type"].startswith("text/html" if page else "application/json")
    if page:
        assert answer.headers["X-Request-Id"] in answer.text
    else:
        assert answer.code


@pytest.mark.parametrize(
    ("path", "accept", "page"),
    [
        ("/auth/reset-password", b"text/html", True),
        ("/auth/reset-password", None, True),
        ("/auth/reset-password", b"application/json", False),
        ("/auth/nothing", b"text/html", True),
        ("/api/auth/login", b"text/html", False),
        ("/nothing", b"text/html", True),
        ("/nothing", None, False),
    ],
)
async def test_the_middleware_and_the_routes_refuse_in_the_same_format(app: QuartTrio, path: str, accept: bytes | None, page: bool) -> None:
    headers = [(b"accept", accept)] if accept is not None else []
    for target, body, status in ((path, b"x" * 300_000, 413), (f"{path}%0A", None, 404)):
        answer = await ask(app, "POST", target, headers=headers, body=body)
        assert answer.status == status
        assert answer.headers["Content-Type"].startswith("text/html" if page else "application/json")
        if page:
            assert answer.headers["X-Request-Id"] in answer.text
            assert "form-action 'none'" in answer.headers["Content-Security-Policy"]
            assert answer.headers.getlist("Cache-Control") == ["no-store"]
        else:
            assert answer.code


async def test_every_error_page_shows_the_support_address(app: Application, ports: Ports, edge: Edge) -> None:
    link = '<p class="quiet">Get help at <a href="mailto:help%2Bid@example.com">help+id@example.com</a>.</p>'
    with_support = replace(ports, policy=replace(ports.policy, support=SupportContact("help+id@example.com")))
    html, form = (b"accept", b"text/html"), (b"content-type", b"application/x-www-form-urlencoded")
    origin = (b"origin", edge.base_url.encode())
    requests: list[tuple[str, str, bytes | None]] = [
        ("GET", "/nothing", None),
        ("GET", "/auth/verify-email?token=x", None),
        ("GET", "/auth/reset-password?token=x", None),
        ("POST", "/auth/reset-password", b"token=x&new_password=nine+lions+at+the+river"),
        ("POST", "/auth/reset-password", b"x" * 300_000),  # refused by the middleware, like the next request
        ("GET", "/app/sign-in%0A", None),
        ("GET", "/auth/authorize", None),
        ("GET", "/saml/logout", None),
        ("GET", "/app/sign-in", None),
    ]
    for changed in (ports, with_support):
        configure(app, changed, edge, observe=lambda _: None, exposition=lambda: b"", exposition_type="text/plain")
        for method, target, body in requests:
            answer = await ask(app, method, target, headers=[html, form, origin] if body else [html], body=body)
            assert answer.headers["Content-Type"].startswith("text/html"), target
            assert (link in answer.text) == (changed is with_support and answer.status >= 400), (target, answer.status)


async def test_an_error_page_has_no_internal_details(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object) -> None:
        raise UNEXPECTED["a defect"]

    monkeypatch.setattr(accounts, "verify_email", fail)
    with capture_logs():
        answer = await api.get("/auth/verify-email?token=x")
    assert answer.status == 500
    assert answer.headers["Content-Type"].startswith("text/html")
    assert "hunter2" not in answer.text
    assert "KeyError" not in answer.text


@pytest.mark.slow
async def test_a_lost_database_is_reported_on_every_kind_of_route(app: QuartTrio, ports: Ports) -> None:
    gone = Pool("host=127.0.0.1 port=1 dbname=nothing", size=2, acquire_timeout=0.5)
    await add_account(ports)
    json_type = (b"content-type", b"application/json")
    login = json.dumps({"email": "ada@example.com", "password": "x" * 10}).encode()
    right = login.replace(b"x" * 10, PASSWORD.encode())
    token = (await ask(app, "POST", "/api/auth/login", headers=[json_type], body=right)).json["access_token"]
    change_ports(app, storage=Postgres(gone, make_vault(), ports.clock))
    for method, path, body in (
        ("POST", "/api/auth/login", login),
        ("POST", "/api/auth/register", login),
        ("POST", "/api/auth/refresh", b'{"refresh_token": "x"}'),
        ("POST", "/api/auth/forgot-password", login),
        ("GET", "/api/user", None),
    ):
        with capture_logs():
            answer = await ask(app, method, path, headers=[json_type], body=body, token=token)
        assert (answer.status, answer.code) == (500, "DATABASE_ERROR"), path
        assert int(answer.headers["Retry-After"]) >= 1
    with capture_logs():
        page = await ask(app, "GET", "/auth/verify-email?token=x")
    assert (page.status, page.headers["Retry-After"] >= "1") == (500, True)
    assert (await ask(app, "GET", "/health/live")).status == 200
    assert (await ask(app, "GET", "/health")).status == 200
    assert (await ask(app, "GET", "/health/ready")).status == 503
    await gone.aclose()
