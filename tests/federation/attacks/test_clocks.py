"""Requests for a fresh sign-in, at processes with clocks that differ by some seconds (docs/adr/0038).

The first process asks the user to sign in, and the second process handles the sign-in.
"""

from datetime import timedelta
from typing import Final

import pytest

from core.accounts.model.accounts import Account
from tests.fakes.outside import FakeClock
from tests.federation.api.openid.client import next_of
from tests.federation.api.relying import RelyingParty, answer_fields, path_of, sign_in_browser
from tests.federation.attacks.test_fresh_sign_ins import is_sign_in, sign_in_at
from tests.federation.attacks.world import is_code, unchanged
from tests.support.browser import leads_to

SECOND: Final = timedelta(seconds=1)
ASKS: Final = {"prompt=login": {"prompt": "login"}, "max_age=0": {"max_age": "0"}}
DIFFERENCES: Final = (timedelta(), 5 * SECOND, 25 * SECOND)  # between the two clocks


@pytest.fixture(params=list(ASKS))
def asks(request: pytest.FixtureRequest) -> dict[str, str]:
    return ASKS[request.param]


@pytest.mark.parametrize("difference", DIFFERENCES, ids=str)
async def test_a_session_of_the_last_seconds_is_not_fresh(
    shop: RelyingParty, user: Account, clock: FakeClock, asks: dict[str, str], difference: timedelta
) -> None:
    """By the clock of the process that asks, the session begins after the request."""
    await sign_in_browser(shop, user, provider="password")
    clock.advance(-difference)
    async with unchanged(shop.tenant.pool):
        page = await shop.browser.open(path_of(shop, **asks))
        assert is_sign_in(page)
        for _ in range(2):
            assert is_sign_in(await shop.browser.open(next_of(page)))
            clock.advance(difference)
        silent = await shop.browser.open(path_of(shop, **{**asks, "prompt": "none", "max_age": "0"}))
        assert answer_fields(silent)["error"] == "login_required"


@pytest.mark.parametrize("difference", DIFFERENCES, ids=str)
async def test_one_sign_in_is_enough(shop: RelyingParty, clock: FakeClock, asks: dict[str, str], difference: timedelta) -> None:
    """By the clock of the process that handles the sign-in, the session begins before the request."""
    clock.advance(timedelta(minutes=2) + difference)
    path = next_of(await shop.browser.open(path_of(shop, **asks)))
    clock.advance(-difference)
    assert leads_to(await sign_in_at(shop.browser, path)) == path
    clock.advance(difference)
    assert is_code(await shop.browser.open(path))


async def test_a_session_of_another_browser_is_not_fresh(shop: RelyingParty, user: Account, clock: FakeClock) -> None:
    """A flow that begins without a session does not make an older session fresh."""
    await sign_in_browser(shop, user, provider="password")
    session = shop.browser.cookies.pop("gatehouse-session")
    clock.advance(31 * SECOND)
    page = await shop.browser.open(path_of(shop, prompt="login"))
    shop.browser.cookies["gatehouse-session"] = session
    assert is_sign_in(await shop.browser.open(next_of(page)))
