"""The days for trusted devices in the policies of an organization and its application, on every path to sign in to the application."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.kernel.roles import MEMBER
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.proof.policy.test_flows import code_of
from tests.proof.policy.world import STATES, World, new_world
from tests.support.browser import FLOW, is_step, leads_to, main_of
from tests.support.builders import PASSWORD, Answer, Api, run_sql

SESSION: Final = "gatehouse-session"
TARGET: Final = {"org_slug": "acme", "service_slug": "shop"}
GRANT: Final = "urn:ietf:params:oauth:grant-type:device_code"
PASSED: Final = timedelta(days=5)  # since the second factor
# Days for the organization and for the application (None: no such rule), and whether the second factor is asked for
DAYS: Final = [
    (None, None, False),
    (None, 0, True),
    (None, 5, True),
    (None, 6, False),
    (20, 3, True),
    (3, 20, True),
    (0, None, True),
    (20, 20, False),
]


@dataclass(frozen=True, slots=True)
class Trusted:
    """Ada's API client, which she trusts as she trusts her browser, and the tokens from a session that began on it."""

    device_token: str
    access_token: str
    refresh_token: str
    device_code: str  # she approved it


async def _log_in(world: World, device_token: str, target: Mapping[str, str]) -> Answer:
    return await world.api.post("/api/auth/login", {"email": world.ada.email, "password": PASSWORD, "device_token": device_token, **target})


async def _ask_for_device(world: World, token: str) -> tuple[str, Answer]:
    """Return a new device's code, and the answer to its approval."""
    codes = (await world.send("/auth/device/code", with_secret=False)).json
    body = {"user_code": codes["user_code"], "action": "approve"}
    return codes["device_code"], await world.api.post("/auth/device/verify", body, token=token)


async def _sign_in_again(world: World) -> None:
    """Begin a session at the platform on the trusted browser. No second factor is asked for."""
    world.browser.cookies.pop(SESSION, None)
    assert not is_step(leads_to(await world.browser.sign_in(world.ada.email)), "code")


async def _trust(world: World) -> Trusted:
    """Trust two devices, and sign in on them when the time has passed."""
    assert world.authenticator is not None
    world.browser.cookies.clear()
    assert is_step(leads_to(await world.browser.sign_in(world.ada.email)), "code")
    await world.browser.show_code(world.authenticator.code(), trust="yes")
    token = (await _log_in(world, "", {})).json["access_token"]
    body = {"code": world.authenticator.code(1), "trust_device": True}
    device_token = (await world.api.post("/api/auth/mfa/verify", body, token=token)).json["device_token"]
    world.clock.advance(PASSED)
    await _sign_in_again(world)
    tokens = (await _log_in(world, device_token, {})).json
    device_code, approved = await _ask_for_device(world, tokens["access_token"])
    assert approved.status == 200, approved.text
    of_application = (await world.exchange(await world.code())).json
    return Trusted(device_token, tokens["access_token"], of_application["refresh_token"], device_code)


async def _asks_after_password(world: World, begin: Callable[[], Awaitable[Answer]]) -> bool:
    """Return whether a new session on the trusted browser needs the second factor."""
    world.browser.cookies.pop(SESSION, None)
    page = await world.browser.open(leads_to(await begin()))
    target = leads_to(await world.browser.fill(page, email=world.ada.email, password=PASSWORD))
    return is_step(target, "code")


async def _asks_in_session(world: World, begin: Callable[[], Awaitable[Answer]]) -> bool:
    """Return whether the session that began on the trusted browser is not enough."""
    await _sign_in_again(world)
    answer = await begin()
    if FLOW.fullmatch(target := answer.headers.get("Location", "")):
        answer = await world.browser.open(target, follows=False)
    return _asks(answer)


async def _asks_at_login(world: World, trusted: Trusted) -> bool:
    return bool((await _log_in(world, trusted.device_token, TARGET)).json.get("mfa_required"))


async def _asks_at_approval(world: World, trusted: Trusted) -> bool:
    return _asks((await _ask_for_device(world, trusted.access_token))[1])


async def _asks_at_poll(world: World, trusted: Trusted) -> bool:
    return _asks(await world.send("/auth/token", with_secret=False, grant_type=GRANT, device_code=trusted.device_code))


async def _asks_at_refresh(world: World, trusted: Trusted) -> bool:
    return _asks(await world.send("/auth/token", grant_type="refresh_token", refresh_token=trusted.refresh_token))


async def _asks_over_the_api(world: World, trusted: Trusted) -> bool:
    path, headers = f"{world.application.management}/login", {"Accept": "application/json"}
    return _asks(await world.api.get(path, token=trusted.access_token, headers=headers))


def _asks(answer: Answer) -> bool:
    return "your second factor again" in answer.text


PATHS: Final[Mapping[str, Callable[[World, Trusted], Awaitable[bool]]]] = {
    "OAuth": lambda world, _: _asks_after_password(world, world.authorize),
    "SAML": lambda world, _: _asks_after_password(world, world.sign_on),
    "OAuth in a session": lambda world, _: _asks_in_session(world, world.authorize),
    "SAML in a session": lambda world, _: _asks_in_session(world, world.sign_on),
    "SAML over the API": _asks_over_the_api,
    "password": _asks_at_login,
    "approval of a device": _asks_at_approval,
    "device": _asks_at_poll,
    "refresh": _asks_at_refresh,
}


@pytest.fixture
async def world(api: Api, app: QuartTrio, ports: Ports, pool: Pool, clock: FakeClock) -> World:
    world = await new_world(api, app, ports, pool, clock, MEMBER)
    await run_sql(pool, "delete from memberships")  # she is an end user, so the sign-in to the platform has no policy
    await world.enter(STATES["code used"])
    return world


async def _put(world: World, of_organization: int | None, of_application: int | None) -> None:
    for service, days in ((None, of_organization), (world.service, of_application)):
        if days is not None:
            await world.put({"device_trust_days": days}, service=service)


async def _take_access(world: World) -> None:
    await run_sql(world.pool, "update services set access_policy = 'assigned'")
    for statement in ("delete from service_users", "delete from end_users"):
        await run_sql(world.pool, statement)


@pytest.mark.parametrize("has_access", [True, False], ids=["user", "stranger"])
@pytest.mark.parametrize(("of_organization", "of_application", "is_over"), DAYS)
async def test_the_shortest_period_counts_on_each_path_to_the_application(
    world: World, of_organization: int | None, of_application: int | None, is_over: bool, has_access: bool
) -> None:
    """Users who may not use the application learn nothing about its rules."""
    trusted = await _trust(world)
    await _put(world, of_organization, of_application)
    if not has_access:
        await _take_access(world)
    asks = {name: await path(world, trusted) for name, path in PATHS.items()}
    assert asks == dict.fromkeys(PATHS, is_over and has_access)


@pytest.mark.parametrize("has_access", [True, False], ids=["user", "stranger"])
async def test_the_period_of_the_general_settings_counts_in_sign_ins_to_the_application(world: World, has_access: bool) -> None:
    """A session that has begun goes on: only a sign-in policy asks in it."""
    trusted = await _trust(world)
    await run_sql(world.pool, "update organizations set device_trust_days = 5")
    if not has_access:
        await _take_access(world)
    asks = {name: await path(world, trusted) for name, path in PATHS.items()}
    assert asks == {name: has_access and name in ("OAuth", "SAML", "password") for name in PATHS}


@pytest.mark.parametrize("of_organization", [None, 20])
async def test_the_second_factor_opens_the_application_again(world: World, of_organization: int | None) -> None:
    """The page says which policy asks. The account itself still trusts the device."""
    await _trust(world)
    await _put(world, of_organization, 0)
    await _sign_in_again(world)
    page = await world.browser.open(leads_to(await world.authorize()))
    assert "Shop asks for your second factor again on this trusted device. Sign in with your second factor." in main_of(page)
    assert is_step(leads_to(await world.browser.fill(page, email=world.ada.email, password=PASSWORD)), "code")
    assert world.authenticator is not None
    code_of(await world.browser.open(leads_to(await world.browser.show_code(world.authenticator.code())), follows=False))
    code_of(await world.authorize())
