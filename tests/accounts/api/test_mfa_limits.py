"""Rate limits on the endpoints for the second factor (security N-2)."""

from datetime import timedelta
from typing import Final

import pytest
from quart_trio import QuartTrio

from entrypoints.http.app import Edge
from tests.fakes.outside import FakeClock
from tests.support.builders import Answer, make_edge
from tests.support.direct import PEER, ask

pytestmark = pytest.mark.slow

SETUP: Final = ("POST", "/api/user/mfa/setup")
DISABLE: Final = ("DELETE", "/api/user/mfa")
REGENERATE: Final = ("POST", "/api/user/mfa/backup-codes/regenerate")
CONFIRM: Final = ("POST", "/api/user/mfa/verify")
VERIFY: Final = ("POST", "/api/auth/mfa/verify")


@pytest.fixture
def edge() -> Edge:
    return make_edge(rate_limit_factor=1.0)


async def request(app: QuartTrio, route: tuple[str, str], peer: str = PEER) -> Answer:
    """Send a request without a token. The request is refused with 401 as soon as the rate limit allows it."""
    return await ask(app, *route, peer=peer)


async def allowed(app: QuartTrio, route: tuple[str, str], count: int) -> int:
    """Return how many of `count` requests the rate limit allows."""
    return sum([(await request(app, route)).status == 401 for _ in range(count)])


async def retry_after(app: QuartTrio, route: tuple[str, str]) -> int:
    """Return a refused request's Retry-After."""
    answer = await request(app, route)
    assert (answer.status, answer.code) == (429, "RATE_LIMIT_EXCEEDED")
    return int(answer.headers["Retry-After"])


async def test_setup_disable_and_regenerate_share_5_requests_then_1_per_5_minutes(app: QuartTrio, clock: FakeClock) -> None:
    for route in (SETUP, DISABLE, REGENERATE, SETUP, DISABLE):
        assert await allowed(app, route, 1) == 1
    for _ in range(2):
        assert [await retry_after(app, route) for route in (SETUP, DISABLE, REGENERATE)] == [300] * 3
        clock.advance(timedelta(seconds=300) - timedelta(milliseconds=1))
        assert await allowed(app, REGENERATE, 1) == 0
        clock.advance(timedelta(milliseconds=1))
        assert await allowed(app, SETUP, 3) == 1
    assert await allowed(app, CONFIRM, 1) == 1, "confirming has another bucket"


async def test_confirming_allows_3_at_once_1_per_second_and_5_per_5_minutes(app: QuartTrio, clock: FakeClock) -> None:
    assert await allowed(app, CONFIRM, 5) == 3
    for _ in range(2):
        assert await retry_after(app, CONFIRM) == 1
        clock.advance(timedelta(seconds=1))
        assert await allowed(app, CONFIRM, 1) == 1
    clock.advance(timedelta(seconds=10))
    assert await retry_after(app, CONFIRM) == 48, "one per minute, and 12 seconds have passed"
    clock.advance(timedelta(seconds=48))
    assert await allowed(app, CONFIRM, 3) == 1


async def test_confirming_and_signing_in_share_a_bucket(app: QuartTrio, clock: FakeClock) -> None:
    assert await allowed(app, CONFIRM, 2) == 2
    assert await allowed(app, VERIFY, 3) == 1
    assert [await retry_after(app, route) for route in (CONFIRM, VERIFY)] == [1, 1]
    clock.advance(timedelta(seconds=3))
    assert await allowed(app, VERIFY, 5) == 3
    clock.advance(timedelta(seconds=1))
    assert await allowed(app, CONFIRM, 1) == 1, "a refused request takes no token"


async def test_status_is_not_limited_and_limits_are_per_address(app: QuartTrio) -> None:
    assert await allowed(app, ("GET", "/api/user/mfa/status"), 30) == 30
    assert await allowed(app, SETUP, 6) == 5
    assert (await request(app, SETUP, peer="198.51.100.7")).status == 401
