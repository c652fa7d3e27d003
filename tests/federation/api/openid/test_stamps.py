"""The stamp of a request that asks for a new sign-in: the parameter `asked`, which proves when the user was asked."""

from datetime import timedelta
from urllib.parse import parse_qs, urlsplit

import pytest

from core.accounts.model.accounts import Account
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.federation.api.openid.client import OpenIdClient, next_of, result
from tests.federation.api.relying import sign_in_browser
from tests.support.builders import sign_in

LOGIN = {"prompt": "login"}


async def stamp(client: OpenIdClient, **changes: str) -> str:
    """Return the stamp of a request for which the user was asked to sign in."""
    page = await client.open(**changes)
    assert "<h1>Sign in" in page.text
    [asked] = parse_qs(urlsplit(next_of(page)).query)["asked"]
    return asked


async def asks_for_sign_in(client: OpenIdClient, **changes: str | None) -> bool:
    answer = await client.open(**changes)
    if answer.status == 303:
        assert "code" in result(answer)
        return False
    assert "<h1>Sign in" in answer.text
    return True


@pytest.fixture
async def asked(signed_in: OpenIdClient, user: Account, clock: FakeClock) -> str:
    """The stamp of a request with `prompt=login`. A minute later, the user signs in."""
    await signed_in.agree_before(user)
    clock.advance(timedelta(minutes=1))
    asked = await stamp(signed_in, **LOGIN)
    assert await asks_for_sign_in(signed_in, **LOGIN, asked=asked), "the old session does not become new by the stamp"
    clock.advance(timedelta(minutes=1))
    await sign_in_browser(signed_in.party, user, provider="password")
    return asked


async def test_a_stamp_accepts_a_later_sign_in_for_its_own_request(signed_in: OpenIdClient, asked: str) -> None:
    assert not await asks_for_sign_in(signed_in, **LOGIN, asked=asked)
    assert await asks_for_sign_in(signed_in, **LOGIN), "without the stamp"


async def test_a_stamp_of_another_request_proves_nothing(signed_in: OpenIdClient, asked: str) -> None:
    for changes in ({"nonce": "n"}, {"state": "other"}, {"scope": "openid email"}, {"max_age": "0"}, {"prompt": "login select_account"}):
        assert await asks_for_sign_in(signed_in, **{**LOGIN, **changes}, asked=asked), changes


async def test_a_stamp_ends(signed_in: OpenIdClient, asked: str, clock: FakeClock) -> None:
    clock.advance(timedelta(minutes=59))
    assert not await asks_for_sign_in(signed_in, **LOGIN, asked=asked)
    clock.advance(timedelta(seconds=1))
    assert await asks_for_sign_in(signed_in, **LOGIN, asked=asked)


async def test_a_forged_stamp_proves_nothing(signed_in: OpenIdClient, asked: str, ports: Ports, user: Account, clock: FakeClock) -> None:
    head, body, signature = asked.split(".")
    access_token = (await sign_in(ports, user)).access_token
    tokens = await signed_in.tokens()
    forged = (f"{head}.{body}.{signature[::-1]}", f"{head}.{body}.", "garbage", "a.b.c", access_token, tokens["id_token"], "x" * 5000)
    for stamp_ in forged:
        assert await asks_for_sign_in(signed_in, **LOGIN, asked=stamp_), stamp_[:40]


async def test_a_stamp_keeps_its_time_when_the_page_is_opened_again(signed_in: OpenIdClient, user: Account, clock: FakeClock) -> None:
    """Otherwise a sign-in in a second tab would not count for the first one."""
    await signed_in.agree_before(user)
    clock.advance(timedelta(minutes=1))
    first = await stamp(signed_in, **LOGIN)
    clock.advance(timedelta(minutes=1))
    assert await stamp(signed_in, **LOGIN, asked=first) == first


async def test_a_stamp_is_no_access_token(signed_in: OpenIdClient, asked: str) -> None:
    assert (await signed_in.party.api.get("/api/user", token=asked)).status == 401
    assert (await signed_in.party.api.get("/auth/userinfo", token=asked)).status == 401
