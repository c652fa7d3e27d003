"""How often one address may come to the endpoints of the second factor (organizations.md section 8; identity.md section 4.2; decisions,
points 25 to 27)."""

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


async def knock(app: QuartTrio, route: tuple[str, str], peer: str = PEER) -> Answer:
    """A request that costs nothing but its tokens: it is refused as soon as it is let in, since nobody is signed in."""
    return await ask(app, *route, peer=peer)


async def admitted(app: QuartTrio, route: tuple[str, str], count: int) -> int:
    return sum([(await knock(app, route)).status == 401 for _ in range(count)])


async def wait(app: QuartTrio, route: tuple[str, str]) -> int:
    """After how many seconds to come back, as a refusal says it."""
    answer = await knock(app, route)
    assert (answer.status, answer.code) == (429, "RATE_LIMIT_EXCEEDED")
    return int(answer.headers["Retry-After"])


async def test_five_of_setup_disable_and_regenerate_together_and_then_one_in_five_minutes(app: QuartTrio, clock: FakeClock) -> None:
    for route in (SETUP, DISABLE, REGENERATE, SETUP, DISABLE):
        assert await admitted(app, route, 1) == 1
    for _ in range(2):
        assert [await wait(app, route) for route in (SETUP, DISABLE, REGENERATE)] == [300] * 3
        clock.advance(timedelta(seconds=300) - timedelta(milliseconds=1))
        assert await admitted(app, REGENERATE, 1) == 0
        clock.advance(timedelta(milliseconds=1))
        assert await admitted(app, SETUP, 3) == 1
    assert await admitted(app, CONFIRM, 1) == 1, "which an enrolment needs, has a bucket of its own"


async def test_confirming_comes_three_times_at_once_once_a_second_and_five_times_in_five_minutes(app: QuartTrio, clock: FakeClock) -> None:
    assert await admitted(app, CONFIRM, 5) == 3
    for _ in range(2):
        assert await wait(app, CONFIRM) == 1
        clock.advance(timedelta(seconds=1))
        assert await admitted(app, CONFIRM, 1) == 1
    clock.advance(timedelta(seconds=10))
    assert await wait(app, CONFIRM) == 48, "evenly refilled: one in a minute, of which twelve seconds are over"
    clock.advance(timedelta(seconds=48))
    assert await admitted(app, CONFIRM, 3) == 1


async def test_confirming_and_signing_in_share_the_bucket_of_verification(app: QuartTrio, clock: FakeClock) -> None:
    assert await admitted(app, CONFIRM, 2) == 2
    assert await admitted(app, VERIFY, 3) == 1
    assert [await wait(app, route) for route in (CONFIRM, VERIFY)] == [1, 1]
    clock.advance(timedelta(seconds=3))
    assert await admitted(app, VERIFY, 5) == 3
    clock.advance(timedelta(seconds=1))
    assert await admitted(app, CONFIRM, 1) == 1, "what was refused has cost nothing"


async def test_status_is_not_limited_and_other_addresses_are_not_held_back(app: QuartTrio) -> None:
    assert await admitted(app, ("GET", "/api/user/mfa/status"), 30) == 30
    assert await admitted(app, SETUP, 6) == 5
    assert (await knock(app, SETUP, peer="198.51.100.7")).status == 401
