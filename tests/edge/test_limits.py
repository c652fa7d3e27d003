"""Rate limits per client address and per directory: all documented buckets, alone and together (security N-1, N-2)."""

import json
from datetime import timedelta
from functools import partial
from ipaddress import ip_network
from typing import cast

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from entrypoints.http.app import Application, Edge
from entrypoints.http.edge.access.declaration import SMALL_BODY, access_of
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.proof.access.calls import routes
from tests.proof.access.table import UNKNOWN_CREDENTIAL
from tests.support.builders import EMAIL, PASSWORD, Answer, Api, add_account, application, make_edge, run_concurrently, run_sql
from tests.support.direct import PEER, ask, change_ports
from tests.support.scim import ERROR_URN, Directory, directory_of
from tests.support.tenants import Tenant
from tests.tables import table

pytestmark = pytest.mark.slow

PROXY = "10.1.2.3"
REFILL = timedelta(minutes=2)  # all tokens are available again

# Method and path, the burst, and the seconds until the next request is allowed.
OWN = {
    ("POST", "/auth/register"): (20, 3),
    ("POST", "/api/auth/register"): (10, 6),
    ("POST", "/api/auth/login"): (10, 6),
    ("POST", "/api/auth/forgot-password"): (5, 12),
    ("POST", "/api/auth/resend-verification"): (3, 20),
    ("POST", "/api/platform/impersonate/<user_id>"): (10, 6),
}
# Routes below /auth/* and /api/auth/* without their own limit: 1 request per second, with a burst of 20. docs/reference/limits.md lists the
# routes for every limit.
SHARED = [
    tuple(route.replace("<provider:provider>", "codehost").split())
    for route, view in routes(application())
    if " /auth/" in route or " /api/auth/" in route
    if not access_of(view).limits
]
UNLIMITED = [
    "/health",
    "/health/live",
    "/health/ready",
    "/metrics",
    "/.well-known/jwks.json",
    "/openapi.json",
    "/docs/api",
    "/docs/",
    "/assets/x",
    "/",
]


@pytest.fixture
def edge(request: pytest.FixtureRequest) -> Edge:
    """The documented limits, times the factor that a test asks for."""
    return make_edge(rate_limit_factor=getattr(request, "param", 1.0), trusted_proxies=(ip_network("10.0.0.0/8"), ip_network("fd00::/8")))


factor = partial(pytest.mark.parametrize, "edge", indirect=True)


async def knock(app: QuartTrio, method: str, path: str, peer: str = PEER, forwarded_for: str | None = None) -> Answer:
    """Send a request that is refused after the limits were counted."""
    headers = [(b"x-forwarded-for", forwarded_for.encode())] if forwarded_for is not None else []
    return await ask(app, method, path, headers=headers, peer=peer)


async def admitted(app: QuartTrio, method: str, path: str, count: int, peer: str = PEER) -> int:
    """Return how many requests, out of `count`, pass the limits."""
    return sum([(await knock(app, method, path, peer)).status != 429 for _ in range(count)])


def wait_of(answer: Answer) -> int:
    """Return a refusal's Retry-After, after checking its format."""
    assert (answer.status, answer.code) == (429, "RATE_LIMIT_EXCEEDED")
    wait = answer.headers["Retry-After"]
    assert wait.isdecimal()
    assert int(wait) >= 1
    return int(wait)


@table(("method", "path"), OWN)
async def test_an_endpoint_has_its_burst_and_its_rate(app: QuartTrio, clock: FakeClock, method: str, path: str) -> None:
    clock.advance(REFILL)
    burst, period = OWN[method, path]
    assert await admitted(app, method, path, burst) == burst
    for _ in range(3):
        wait = wait_of(await knock(app, method, path))
        assert wait == period
        clock.advance(timedelta(seconds=wait) - timedelta(milliseconds=1))
        assert (await knock(app, method, path)).status == 429
        clock.advance(timedelta(milliseconds=1))
        assert await admitted(app, method, path, 3) == 1
    clock.advance(timedelta(minutes=1))
    assert await admitted(app, method, path, burst + 2) == burst


@table(("method", "path"), SHARED)
async def test_the_scope_has_its_burst_and_its_rate(app: QuartTrio, clock: FakeClock, method: str, path: str) -> None:
    clock.advance(REFILL)
    assert await admitted(app, method, path, 20) == 20
    answer = await ask(app, method, path)
    assert (answer.status, answer.headers["Retry-After"]) == (429, "1")
    clock.advance(timedelta(seconds=1))
    assert [(await ask(app, method, path)).status == 429 for _ in range(2)] == [False, True]
    clock.advance(timedelta(seconds=5))
    assert sum([(await ask(app, method, path)).status != 429 for _ in range(7)]) == 5


async def test_all_endpoints_of_a_scope_share_one_bucket(app: QuartTrio) -> None:
    for number in range(20):
        method, path = SHARED[number % len(SHARED)]
        assert (await knock(app, method, path)).status != 429
    for method, path in [*SHARED, *OWN]:
        assert ((await knock(app, method, path)).status == 429) == ("/auth/" in path), path


async def test_a_request_refused_by_its_endpoint_costs_nothing_in_the_scope(app: QuartTrio) -> None:
    assert await admitted(app, "POST", "/api/auth/resend-verification", 53) == 3
    # Three requests already count in the scope, which allows 20.
    assert await admitted(app, "GET", "/auth/reset-password", 25) == 17


async def test_a_request_refused_by_the_scope_costs_its_endpoint_nothing(app: QuartTrio, clock: FakeClock) -> None:
    assert await admitted(app, "GET", "/auth/reset-password", 20) == 20
    assert await admitted(app, "POST", "/api/auth/resend-verification", 10) == 0
    clock.advance(timedelta(seconds=10))
    assert await admitted(app, "POST", "/api/auth/resend-verification", 10) == 3


async def test_retry_after_is_the_longest_wait(app: QuartTrio) -> None:
    assert await admitted(app, "POST", "/api/auth/forgot-password", 5) == 5
    assert await admitted(app, "GET", "/auth/reset-password", 15) == 15
    assert wait_of(await knock(app, "POST", "/api/auth/refresh")) == 1
    assert wait_of(await knock(app, "POST", "/api/auth/forgot-password")) == 12
    assert wait_of(await knock(app, "POST", "/api/auth/login")) == 1


async def test_clients_do_not_share_buckets(app: QuartTrio) -> None:
    assert await admitted(app, "POST", "/api/auth/forgot-password", 6) == 5
    assert await admitted(app, "POST", "/api/auth/forgot-password", 6, peer="203.0.113.10") == 5
    assert await admitted(app, "POST", "/api/auth/login", 6) == 6


async def test_health_and_metrics_are_never_limited(app: QuartTrio) -> None:
    assert await admitted(app, "GET", "/auth/reset-password", 21) == 20
    for path in UNLIMITED:
        assert await admitted(app, "GET", path, 25) == 25


async def test_authenticated_reads_have_no_limit(app: QuartTrio) -> None:
    assert await admitted(app, "GET", "/api/user", 40) == 40


# A limit that a request's first query takes


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"credential": UNKNOWN_CREDENTIAL}, 401),
        ({"credential": UNKNOWN_CREDENTIAL | {"rawId": "AA"}}, 401),  # refused without its own query
        ({"credential": UNKNOWN_CREDENTIAL, "org_slug": "none", "service_slug": "none"}, 404),
        ({"credential": "none"}, 400),
        ({"credential": UNKNOWN_CREDENTIAL, "padding": "x" * SMALL_BODY}, 401),  # its tokens are taken before the body is read
        (None, 415),
    ],
)
async def test_every_request_takes_a_token_of_a_limit_that_joins_a_query(
    app: QuartTrio, pool: Pool, body: dict[str, object] | None, status: int
) -> None:
    raw = b"{}" if body is None else json.dumps(body).encode()
    content_type = b"text/plain" if body is None else b"application/json"
    parts = (app, "POST", "/api/auth/passkey")

    async def send(_: int) -> int:
        return (await ask(*parts, headers=[(b"content-type", content_type)], body=raw)).status

    assert sorted(await run_concurrently(25, send)) == [status] * 20 + [429] * 5
    recorded = 20 if status == 401 else 0  # no request beyond the limit
    assert await run_sql(pool, "select coalesce(sum(attempts), 0)::int from login_events") == [(recorded,)]


async def test_a_request_without_its_body_takes_its_token(app: QuartTrio, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cast("Application", app).middleware, "body_within", 0.0)
    headers = [(b"content-type", b"application/json")]
    for _ in range(20):
        assert (await ask(app, "POST", "/api/auth/passkey", headers=headers, body=b"{}", stalls=True)).status == 408
    assert (await knock(app, "POST", "/api/auth/passkey")).status == 429


# Parallel requests


@table(("method", "path"), [*OWN, *SHARED[:1]])
async def test_parallel_requests_pass_exactly_up_to_the_burst(app: QuartTrio, clock: FakeClock, method: str, path: str) -> None:
    clock.advance(REFILL)
    burst = OWN.get((method, path), (20, 1))[0]
    answers = await run_concurrently(burst + 20, lambda _: knock(app, method, path))
    assert sum(answer.status != 429 for answer in answers) == burst
    assert {answer.status for answer in answers} <= {429, 400, 401}


async def test_parallel_requests_to_two_endpoints_share_the_scope_exactly(app: QuartTrio) -> None:
    paths = [("POST", "/api/auth/login"), ("POST", "/api/auth/register"), ("GET", "/auth/reset-password")]
    answers = await run_concurrently(45, lambda number: knock(app, *paths[number % 3]))
    assert sum(answer.status != 429 for answer in answers) == 20


# The client


async def test_only_trusted_proxies_can_forward_an_address(app: QuartTrio) -> None:
    login = partial(knock, app, "POST", "/api/auth/login")
    # An untrusted client's header is ignored.
    assert sum([(await login(PEER, f"198.51.100.{number}")).status != 429 for number in range(15)]) == 10
    # Behind a proxy, every client has its own bucket.
    assert sum([(await login(PROXY, f"198.51.100.{number}")).status != 429 for number in range(15)]) == 15
    # The rightmost address that is not a trusted proxy counts. The client can invent everything to
    # the left.
    assert sum([(await login(PROXY, f"192.0.2.{number}, 198.51.100.77, 10.9.9.9")).status != 429 for number in range(15)]) == 10
    # A client has the same bucket with and without the proxy.
    assert (await login(PROXY, PEER)).status == 429


async def test_a_proxy_without_the_header_is_the_client(app: QuartTrio) -> None:
    assert await admitted(app, "POST", "/api/auth/login", 12, peer=PROXY) == 10
    assert (await knock(app, "POST", "/api/auth/login", PROXY, "nonsense")).status == 429


async def test_an_ipv6_network_is_one_client(app: QuartTrio) -> None:
    login = partial(knock, app, "POST", "/api/auth/login")
    assert sum([(await login(f"2001:db8:1:2::{number:x}")).status != 429 for number in range(1, 16)]) == 10
    assert (await login("2001:db8:1:2:ffff:ffff:ffff:ffff")).status == 429
    assert (await login("2001:db8:1:3::1")).status != 429


async def test_an_ipv4_address_mapped_to_ipv6_is_the_same_client(app: QuartTrio) -> None:
    assert await admitted(app, "POST", "/api/auth/login", 10) == 10
    assert (await knock(app, "POST", "/api/auth/login", f"::ffff:{PEER}")).status == 429
    assert (await knock(app, "POST", "/api/auth/login", "::ffff:203.0.113.10")).status != 429


# The operator's factor


@factor([2.0])
async def test_a_factor_raises_the_limits(app: QuartTrio, clock: FakeClock) -> None:
    assert await admitted(app, "POST", "/api/auth/login", 30) == 20
    assert wait_of(await knock(app, "POST", "/api/auth/login")) == 3
    clock.advance(timedelta(seconds=3))
    assert await admitted(app, "POST", "/api/auth/login", 3) == 1
    clock.advance(timedelta(minutes=10))
    assert await admitted(app, "GET", "/auth/reset-password", 45) == 40


@factor([0.1])
async def test_a_small_factor_still_allows_one_request(app: QuartTrio, clock: FakeClock) -> None:
    assert await admitted(app, "POST", "/api/auth/resend-verification", 3) == 1
    wait = wait_of(await knock(app, "POST", "/api/auth/resend-verification"))
    assert wait == 200
    clock.advance(timedelta(seconds=wait))
    assert await admitted(app, "POST", "/api/auth/resend-verification", 3) == 1


@factor([None])
async def test_limits_per_address_can_be_switched_off(app: QuartTrio, pool: Pool) -> None:
    for method, path in OWN:
        assert await admitted(app, method, path, 25) == 25
    async with pool.connection() as connection:
        assert await connection.rows("select client from rates") == []


@factor([None])
async def test_limits_per_account_cannot_be_switched_off(api: Api) -> None:
    statuses = [(await api.login(password="wrong password")).status for _ in range(11)]
    assert statuses == [401] * 10 + [429]


# The check order


async def test_limits_are_checked_first(app: QuartTrio, ports: Ports, pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    await add_account(ports)

    class Untouched:
        def __getattr__(self, name: str) -> object:
            raise AssertionError(f"passwords.{name} was used")

    assert await admitted(app, "POST", "/api/auth/login", 10) == 10
    assert await admitted(app, "POST", "/api/auth/register", 10) == 10
    change_ports(app, passwords=Untouched())
    json_type = (b"content-type", b"application/json")
    credentials = json.dumps({"email": EMAIL, "password": PASSWORD}).encode()
    for path in ("/api/auth/login", "/api/auth/register"):
        for body in (credentials, b"{", b"\xff", b"[]", b"{}", None):
            answer = await ask(app, "POST", path, headers=[json_type], body=body)
            assert (answer.status, answer.code) == (429, "RATE_LIMIT_EXCEEDED")
        assert (await ask(app, "POST", path, headers=[(b"content-type", b"text/plain")], body=b"x")).status == 429
        assert (await ask(app, "POST", path + "?" + "a=1&" * 150)).status == 429
    assert (await ask(app, "POST", "/api/auth/logout")).status == 429
    assert (await ask(app, "POST", "/api/auth/logout", token="not.a.token")).status == 429
    async with pool.connection() as connection:
        assert await connection.rows("select 1 from guesses") == []
        assert await connection.rows("select 1 from mails") == []


async def test_credentials_are_checked_before_the_request(app: QuartTrio) -> None:
    for target, body in (("/api/user", b"{"), ("/api/user?" + "a=1&" * 150, None)):
        answer = await ask(app, "PATCH", target, body=body)
        assert (answer.status, answer.code) == (401, "UNAUTHORIZED"), target


async def test_a_page_reports_a_limit_as_a_page(app: QuartTrio) -> None:
    assert await admitted(app, "GET", "/auth/reset-password", 20) == 20
    answer = await ask(app, "GET", "/auth/reset-password", headers=[(b"accept", b"text/html")])
    assert answer.status == 429
    assert answer.headers["Retry-After"] == "1"
    assert answer.headers["Content-Type"].startswith("text/html")


async def test_a_client_has_one_row_regardless_of_its_requests(app: QuartTrio, pool: Pool) -> None:
    for method, path in [*OWN, *SHARED]:
        await knock(app, method, path)
    async with pool.connection() as connection:
        rows = await connection.rows("select client, expires_at > to_timestamp(0) from rates")
    assert rows == [(PEER, True)]


# Directories


async def test_directories_are_limited_per_organization(
    app: QuartTrio, clock: FakeClock, pool: Pool, acme: Tenant, directory: Directory, other_tenant: Tenant
) -> None:
    other = await directory_of(other_tenant)
    second = await directory_of(acme, "admin")
    assert {(await each.call("GET", "/Groups")).status for each in (directory, second)} == {200}
    await run_sql(pool, "update rates set tats = jsonb_build_object('scim', %s::float8) where client like %s", *full_bucket(clock, acme))
    for each, method in ((directory, "GET"), (second, "POST")):
        answer = await each.call(method, "/Users")
        assert (answer.status, answer.headers["Retry-After"]) == (429, "1")
        assert answer.json["schemas"] == [ERROR_URN]
    assert (await other.call("GET", "/Groups")).status == 200
    clock.advance(timedelta(seconds=1))
    assert [(await directory.call("GET", "/ServiceProviderConfig")).status for _ in range(51)] == [200] * 50 + [429]


def full_bucket(clock: FakeClock, tenant: Tenant) -> tuple[float, str]:
    """Return the organization's bucket state after as many requests as it allows, and its row."""
    return clock.now().timestamp() + 500 * 0.02, f"%{tenant.org}"
