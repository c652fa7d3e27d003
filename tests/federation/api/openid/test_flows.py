"""The flow of a request that asks for a new sign-in: it proves when the user was asked, and for which request."""

from datetime import timedelta
from urllib.parse import quote, urlencode

import pytest
from quart_trio import QuartTrio

from core.accounts.model.accounts import Account
from core.kernel.values import new_id
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.federation.api.openid.client import OpenIdClient, next_of, result
from tests.federation.api.relying import sign_in_browser
from tests.federation.attacks.world import is_code
from tests.support.browser import FakeBrowser
from tests.support.builders import Answer, sign_in

LOGIN = {"prompt": "login"}
ENDED = "This sign-in is no longer open"


async def begin(client: OpenIdClient, **changes: str) -> str:
    """Return the path of the flow of a request for which the user is asked to sign in."""
    page = await client.open(**changes)
    assert "<h1>Sign in" in page.text
    return next_of(page)


def is_asked(answer: Answer) -> bool:
    if answer.status == 303:
        assert "code" in result(answer)
        return False
    assert "<h1>Sign in" in answer.text
    return True


@pytest.fixture
async def flow(signed_in: OpenIdClient, user: Account, clock: FakeClock) -> str:
    """The flow of a request with `prompt=login`. A minute later, the user signs in."""
    await signed_in.agree_before(user)
    clock.advance(timedelta(minutes=1))
    flow = await begin(signed_in, **LOGIN)
    assert is_asked(await signed_in.party.browser.open(flow)), "the old session does not become new in the flow"
    clock.advance(timedelta(minutes=1))
    await sign_in_browser(signed_in.party, user, provider="password")
    return flow


async def test_a_flow_accepts_a_later_sign_in_for_its_own_request(signed_in: OpenIdClient, flow: str) -> None:
    assert not is_asked(await signed_in.party.browser.open(flow))
    assert is_asked(await signed_in.open(**LOGIN)), "without the flow"
    assert ENDED in (await signed_in.party.browser.open(flow)).text, "it answers once"


async def test_the_flow_of_another_request_proves_nothing(signed_in: OpenIdClient, flow: str) -> None:
    for changes in ({"nonce": "n"}, {"state": "other"}, {"scope": "openid email"}, {"max_age": "0"}, {"prompt": "login select_account"}):
        assert is_asked(await signed_in.open(**{**LOGIN, **changes}, flow=flow, asked=flow)), changes
    other = {"nonce": "n", "state": "other", "scope": "openid email", "redirect_uri": "https://evil.example"}
    tokens = await signed_in.party.exchange(result(await signed_in.party.browser.open(f"{flow}?{urlencode(other)}"))["code"])
    assert (tokens.json["scope"], "nonce" in await signed_in.id_claims(tokens.json)) == ("openid", False)


async def test_a_sign_in_is_fresh_for_an_hour(signed_in: OpenIdClient, user: Account, clock: FakeClock) -> None:
    await signed_in.agree_before(user)
    clock.advance(timedelta(minutes=1))
    flows = [await begin(signed_in, **LOGIN, state="af0ifjsldkj") for _ in range(2)]
    await sign_in_browser(signed_in.party, user, provider="password")
    clock.advance(timedelta(hours=1))
    assert not is_asked(await signed_in.party.browser.open(flows[0]))
    clock.advance(timedelta(microseconds=1))
    assert is_asked(await signed_in.party.browser.open(flows[1]))


async def test_a_flow_ends_after_a_day(signed_in: OpenIdClient, flow: str, user: Account, clock: FakeClock) -> None:
    clock.advance(timedelta(hours=24))
    await sign_in_browser(signed_in.party, user, provider="password")
    page = await signed_in.party.browser.open(flow)
    assert (ENDED in page.text, is_code(page)) == (True, False)


async def test_a_forged_flow_proves_nothing(signed_in: OpenIdClient, flow: str, ports: Ports, user: Account) -> None:
    own = flow.rpartition("/")[2]
    access_token = (await sign_in(ports, user)).access_token
    tokens = await signed_in.tokens()
    edited = own[:-1] + ("0" if own[-1] != "0" else "1")
    for forged in (
        edited,
        str(new_id()),
        own.replace("-", ""),
        f"{own}x",
        "garbage",
        "a.b.c",
        access_token,
        tokens["id_token"],
        "x" * 5000,
    ):
        page = await signed_in.party.browser.open(f"/app/flow/{quote(forged, safe='')}")
        assert (page.status == 404 or ENDED in page.text, is_code(page)) == (True, False), forged[:40]


async def test_a_flow_belongs_to_its_browser(signed_in: OpenIdClient, flow: str, app: QuartTrio) -> None:
    """Also with the same session: an attacker cannot use a flow that leaks, nor lead a user through their own."""
    thief = FakeBrowser(app)
    thief.cookies["gatehouse-session"] = signed_in.party.browser.cookies["gatehouse-session"]
    for _ in range(2):  # without and with a device cookie
        page = await thief.open(flow)
        assert (ENDED in page.text, is_code(page), "Shop" in page.text) == (True, False, False)
        await thief.open("/auth/authorize?prompt=login")
    assert not is_asked(await signed_in.party.browser.open(flow))


async def test_a_flow_keeps_its_time_when_the_page_is_opened_again(signed_in: OpenIdClient, user: Account, clock: FakeClock) -> None:
    """Otherwise a sign-in in a second tab would not count for the first one."""
    await signed_in.agree_before(user)
    clock.advance(timedelta(minutes=1))
    first = await begin(signed_in, **LOGIN)
    clock.advance(timedelta(minutes=1))
    second = await begin(signed_in, **LOGIN)
    assert second != first
    await sign_in_browser(signed_in.party, user, provider="password")
    clock.advance(timedelta(minutes=1))
    for flow in (first, second):
        assert not is_asked(await signed_in.party.browser.open(flow))
    third = await begin(signed_in, **LOGIN)
    clock.advance(timedelta(minutes=1))
    page = await signed_in.party.browser.open(third)
    assert (is_asked(page), next_of(page)) == (True, third)


async def test_a_flow_is_no_access_token(signed_in: OpenIdClient, flow: str) -> None:
    for token in (flow, flow.rpartition("/")[2]):
        assert (await signed_in.party.api.get("/api/user", token=token)).status == 401
        assert (await signed_in.party.api.get("/auth/userinfo", token=token)).status == 401
