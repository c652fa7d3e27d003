"""A request that asks for a new sign-in keeps in its flow when it asked, and which session the browser had then."""

from datetime import timedelta
from urllib.parse import urlencode
from uuid import uuid4

import pytest

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.federation.api.openid.client import OpenIdClient, result
from tests.federation.api.relying import sign_in_browser
from tests.support.browser import FakeBrowser, has_ended
from tests.support.builders import run_sql, sign_in

LOGIN = {"prompt": "login"}


async def begin(client: OpenIdClient, **changes: str) -> str:
    """Return the path of the flow for a request for which the user is asked to sign in."""
    page = await client.open(**changes)
    assert "<h1>Sign in" in page.text
    return client.party.browser.path.removesuffix("/sign-in")


async def asks_for_sign_in(client: OpenIdClient, path: str) -> bool:
    answer = await client.party.browser.open(path)
    if answer.status == 303:
        assert "code" in result(answer)
        return False
    assert "<h1>Sign in" in answer.text
    return True


@pytest.fixture
async def flow(signed_in: OpenIdClient, user: Account, clock: FakeClock) -> str:
    """The flow for a request with `prompt=login`. A minute later, the user signs in in another tab."""
    await signed_in.agree_before(user)
    clock.advance(timedelta(minutes=1))
    flow = await begin(signed_in, **LOGIN)
    assert await asks_for_sign_in(signed_in, flow), "the old session does not become new by the flow"
    clock.advance(timedelta(minutes=1))
    await sign_in_browser(signed_in.party, user, provider="password")
    return flow


async def test_a_flow_accepts_a_later_sign_in_for_its_own_request(signed_in: OpenIdClient, flow: str) -> None:
    await begin(signed_in, **LOGIN)  # another request, which asks again
    assert not await asks_for_sign_in(signed_in, flow)


async def test_a_flow_works_once(signed_in: OpenIdClient, flow: str, pool: Pool) -> None:
    assert not await asks_for_sign_in(signed_in, flow)
    for _ in range(2):
        assert has_ended(await signed_in.party.browser.open(flow))
    assert await run_sql(pool, "select count(*) from authorization_codes where session_id is null") == [(1,)]


async def test_a_flow_of_another_request_proves_nothing(signed_in: OpenIdClient, flow: str) -> None:
    for changes in ({"nonce": "n"}, {"state": "other"}, {"scope": "openid email"}, {"max_age": "0"}, {"prompt": "login select_account"}):
        assert await asks_for_sign_in(signed_in, await begin(signed_in, **{**LOGIN, **changes})), changes
    other = {"nonce": "n", "state": "other", "scope": "openid email", "redirect_uri": "https://evil.example"}
    code = result(await signed_in.party.browser.open(f"{flow}?{urlencode(other)}"))["code"]
    tokens = (await signed_in.party.exchange(code)).json
    assert (tokens["scope"], "nonce" in await signed_in.id_claims(tokens)) == ("openid", False)


async def test_a_new_sign_in_counts_for_an_hour(signed_in: OpenIdClient, flow: str, user: Account, clock: FakeClock) -> None:
    other = await begin(signed_in, **LOGIN)
    await sign_in_browser(signed_in.party, user, provider="password")
    clock.advance(timedelta(hours=1))
    assert not await asks_for_sign_in(signed_in, other)
    clock.advance(timedelta(microseconds=1))
    assert await asks_for_sign_in(signed_in, flow)


async def test_a_flow_ends_after_a_day(signed_in: OpenIdClient, flow: str, user: Account, clock: FakeClock) -> None:
    clock.advance(timedelta(hours=24))
    await sign_in_browser(signed_in.party, user, provider="password")
    assert has_ended(await signed_in.party.browser.open(flow))


async def test_a_made_up_flow_proves_nothing(signed_in: OpenIdClient, flow: str, ports: Ports, user: Account) -> None:
    access_token, id_token = (await sign_in(ports, user)).access_token, (await signed_in.tokens())["id_token"]
    browser = signed_in.party.browser
    for path in (f"/app/flow/{uuid4()}", f"{flow[:-1]}{'0' if flow[-1] != '0' else '1'}"):
        for step in ("", "/sign-in", "/code", "/consent"):
            assert has_ended(await browser.open(path + step)), path + step
    made_up = ("garbage", "", "a.b.c", access_token, id_token, "x" * 5000)
    steps = ("", "/sign-in", "/sign-up", "/code", "/email", "/confirm", "/consent", "/select", "/forgot-password", "/resend-verification")
    for path in (*(f"/app/flow/{flow_id}" for flow_id in made_up if flow_id), f"{flow}x", flow.replace("-", "")):
        for step in steps:
            assert has_ended(await browser.open(path + step)), path + step
        for step in ("/sign-in", "/sign-up", "/code", "/email", "/sign-in/email", "/confirm", "/forgot-password", "/resend-verification"):
            assert has_ended(await browser.send(path + step, form_token="x")), path + step
    for path in ("/app/flow/", "/app/flow/a/b/c", f"{flow}/nothing"):
        assert (await browser.open(path)).status == 404, path


async def test_a_flow_of_another_browser_proves_nothing_and_says_nothing(signed_in: OpenIdClient, flow: str, user: Account) -> None:
    ours = signed_in.party.browser
    for other in (FakeBrowser(ours._app), FakeBrowser(ours._app)):
        for step in ("", "/sign-in", "/code", "/consent"):
            page = await other.open(flow + step)
            assert has_ended(page)
            assert "Shop" not in page.text
            assert "shop.example" not in page.text
    stolen = FakeBrowser(ours._app)
    stolen.cookies["gatehouse-session"] = ours.cookies["gatehouse-session"]  # without the device
    assert has_ended(await stolen.open(flow))


async def test_a_flow_keeps_its_time_when_its_page_is_opened_again(
    signed_in: OpenIdClient, user: Account, clock: FakeClock, pool: Pool
) -> None:
    """Otherwise a sign-in in a second tab would not count for the first tab."""
    await signed_in.agree_before(user)
    clock.advance(timedelta(minutes=1))
    flow = await begin(signed_in, **LOGIN)
    rows = await run_sql(pool, "select f::text from sign_in_flows f")
    clock.advance(timedelta(minutes=1))
    assert await asks_for_sign_in(signed_in, flow)
    assert await run_sql(pool, "select f::text from sign_in_flows f") == rows


async def test_a_flow_is_no_access_token(signed_in: OpenIdClient, flow: str) -> None:
    for token in (flow, flow.rpartition("/")[2]):
        assert (await signed_in.party.api.get("/api/user", token=token)).status == 401
        assert (await signed_in.party.api.get("/auth/userinfo", token=token)).status == 401
