"""Health, metrics, signing keys, the interactive API page and the assets."""

import base64
import re
from datetime import timedelta
from pathlib import Path

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from adapters.prometheus import CONTENT_TYPE
from core.authentication.tokens import signing_keys
from entrypoints.http.app import Application, configure
from entrypoints.http.base.rendering.assets import asset_url
from entrypoints.version import REVISION, VERSION, find_revision
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.support.builders import Api, add_account, make_edge, make_vault
from tests.support.direct import ask, change_ports

EXPOSITION = b"# HELP sso_x X.\n# TYPE sso_x gauge\nsso_x 1.0\n"


def bind_with_metrics_token(worker_app: Application, ports: Ports, token: str | None) -> None:
    """Bind the application to a metrics exposition, and to the token that it requires, if any."""
    edge = make_edge(metrics_token=token)
    configure(worker_app, ports, edge, observe=lambda _: None, exposition=lambda: EXPOSITION, exposition_type=CONTENT_TYPE)


async def test_health_has_the_version(api: Api) -> None:
    answer = await api.get("/health")
    assert (answer.status, answer.json) == (200, {"status": "healthy", "version": VERSION, "revision": REVISION})
    assert answer.headers["Content-Type"] == "application/json"


async def test_live_has_no_body(api: Api) -> None:
    answer = await api.get("/health/live")
    assert (answer.status, answer.text) == (200, "")


async def test_the_service_is_ready_while_the_database_answers(api: Api) -> None:
    answer = await api.get("/health/ready")
    assert (answer.status, answer.json) == (200, {"status": "ready", "version": VERSION, "database": "connected"})


@pytest.mark.slow
async def test_the_service_is_not_ready_while_the_database_is_down(app: QuartTrio, ports: Ports, clock: FakeClock) -> None:
    gone = Pool("host=127.0.0.1 port=1 dbname=nothing", size=1, acquire_timeout=0.5)
    change_ports(app, storage=Postgres(gone, make_vault(), clock))
    answer = await ask(app, "GET", "/health/ready")
    assert (answer.status, answer.json) == (503, {"status": "unhealthy", "version": VERSION, "database": "disconnected"})
    assert (await ask(app, "GET", "/health")).status == 200
    assert (await ask(app, "GET", "/health/live")).status == 200
    change_ports(app, storage=ports.storage)
    assert (await ask(app, "GET", "/health/ready")).status == 200
    await gone.aclose()


@pytest.mark.parametrize("accept", ["", "*/*", "text/html", "application/json", "application/openmetrics-text; version=1.0.0"])
async def test_metrics_have_the_text_format_0_0_4_for_every_accept_header(worker_app: Application, ports: Ports, accept: str) -> None:
    bind_with_metrics_token(worker_app, ports, None)
    answer = await ask(worker_app, "GET", "/metrics", headers=[(b"accept", accept.encode())])
    assert (answer.status, answer.text) == (200, EXPOSITION.decode())
    assert re.fullmatch(r"text/plain; version=0\.0\.4(; charset=utf-8)?", answer.headers["Content-Type"])


@pytest.mark.slow
async def test_metrics_can_require_a_token(worker_app: Application, ports: Ports) -> None:
    bind_with_metrics_token(worker_app, ports, "scrape me")
    refused = [
        [],
        [(b"authorization", b"Bearer")],
        [(b"authorization", b"Bearer wrong")],
        [(b"authorization", b"Bearer scrape")],
        [(b"authorization", b"scrape me")],
        [(b"authorization", b"Basic scrape me")],
        [(b"authorization", b"Bearer \xff\xfe")],
        [(b"x-api-key", b"scrape me")],
    ]
    for headers in refused:
        answer = await ask(worker_app, "GET", "/metrics", headers=headers)
        assert answer.status == 401, headers
        assert answer.code == "UNAUTHORIZED"
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")
    assert (await ask(worker_app, "GET", "/metrics?token=scrape%20me")).status == 401
    # The scheme ignores case (RFC 9110 section 11.1).
    for scheme in (b"Bearer", b"bearer", b"BEARER"):
        assert (await ask(worker_app, "GET", "/metrics", headers=[(b"authorization", scheme + b" scrape me")])).status == 200
    for path in ("/health", "/health/live", "/health/ready"):
        assert (await ask(worker_app, "GET", path)).status == 200


async def test_only_the_public_halves_of_keys_are_published(api: Api) -> None:
    answer = await api.get("/.well-known/jwks.json")
    assert answer.status == 200
    assert answer.headers["Content-Type"].split(";")[0] in ("application/jwk-set+json", "application/json")
    assert answer.headers["Cache-Control"].startswith("public")
    [key] = answer.json["keys"]
    assert (key["kty"], key["use"], key["alg"], key["kid"]) == ("RSA", "sig", "RS256", "test")
    assert set(key) == {"kty", "use", "alg", "kid", "n", "e"}
    assert len(base64.urlsafe_b64decode(key["n"] + "==")) == 256


@pytest.mark.slow
async def test_a_rotated_key_stays_published_for_the_longest_token_lifetime(api: Api, ports: Ports, clock: FakeClock) -> None:
    await add_account(ports)
    old = (await api.login()).json["access_token"]
    clock.advance(timedelta(seconds=1))
    kid = (await signing_keys.rotate(ports)).kid
    await signing_keys.load(ports)
    assert {key["kid"] for key in (await api.get("/.well-known/jwks.json")).json["keys"]} == {"test", kid}
    assert (await api.get("/api/user", token=old)).status == 200
    assert (await api.login()).status == 200
    clock.advance(ports.policy.signing_key_lead_time + timedelta(hours=1))
    await signing_keys.load(ports)
    assert {key["kid"] for key in (await api.get("/.well-known/jwks.json")).json["keys"]} == {"test", kid}, "of an API resource"
    clock.advance(timedelta(minutes=2))
    await signing_keys.load(ports)
    assert {key["kid"] for key in (await api.get("/.well-known/jwks.json")).json["keys"]} == {kid}


async def test_the_description_is_served_as_json(api: Api) -> None:
    answer = await api.get("/openapi.json")
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.json["openapi"].startswith("3.1")


async def test_the_interactive_page_loads_only_our_files(api: Api) -> None:
    page = await api.get("/docs/api")
    assert page.status == 200
    assert page.headers["Content-Type"].startswith("text/html")
    policy = page.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    loaded = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert loaded
    for address in loaded:
        assert address.startswith("/")
        assert not address.startswith("//")
        assert (await api.get(address)).status == (303 if address == "/" else 200)
    assert "<script>" not in page.text  # only files


async def test_assets_are_cached_forever(app: QuartTrio) -> None:
    answer = await ask(app, "GET", asset_url("icon.svg"))
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "image/svg+xml"
    assert answer.headers["Cache-Control"] == "public, max-age=31536000, immutable"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize("name", ["icon.svg", "", "..", "../main.py", "..%2f..%2faccess.py", "docs.html", "docs.js", "x", "%00"])
async def test_other_files_are_not_served(app: QuartTrio, name: str) -> None:
    assert (await ask(app, "GET", f"/assets/{name}")).status == 404


async def test_the_front_page_leads_to_the_sign_in(api: Api) -> None:
    page = await api.get("/", token="not.a.token")
    assert (page.status, page.headers["Location"]) == (303, "/app")


async def test_operations_need_no_credentials_and_ignore_them(api: Api) -> None:
    for path in (
        "/health",
        "/health/live",
        "/health/ready",
        "/metrics",
        "/.well-known/jwks.json",
        "/openapi.json",
        "/docs/api",
        "/docs/",
    ):
        assert (await api.get(path, token="not.a.token")).status == 200, path


def test_the_revision_is_that_of_the_export_or_of_the_clone(tmp_path: Path) -> None:
    commit = "0574eb8e753d1039c38111aa8264b013e728f5d3"
    assert find_revision(commit, tmp_path) == commit
    assert find_revision("$Format:%H$", tmp_path) is None
    (tmp_path / "HEAD").write_text("ref: refs/heads/main\n")
    (tmp_path / "packed-refs").write_text(f"# pack-refs with: peeled fully-peeled sorted\n{commit} refs/heads/main\n^{'0' * 40}\n")
    assert find_revision("$Format:%H$", tmp_path) == commit
    (tmp_path / "refs/heads").mkdir(parents=True)
    (tmp_path / "refs/heads/main").write_text("1" * 40 + "\n")
    assert find_revision("$Format:%H$", tmp_path) == "1" * 40
    (tmp_path / "HEAD").write_text(commit)
    assert find_revision("$Format:%H$", tmp_path) == commit
