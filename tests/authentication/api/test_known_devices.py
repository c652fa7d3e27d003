"""Strangers' guesses do not lock a user out in a browser or client where they have signed in before (security A-3)."""

from secrets import token_urlsafe
from uuid import UUID

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from ports import Ports
from tests.fakes.outside import FakeClock, FakeMailTransport
from tests.support.browser import HOME, FakeBrowser, is_step, leads_to
from tests.support.builders import EMAIL, NEW_PASSWORD, PASSWORD, Answer, Api, add_account, deliver, link, run_concurrently, run_sql
from tests.support.mfa import add_mfa

WRONG = "wrong password"
LIMIT = 10
OWN = token_urlsafe(16)  # 22 characters


@pytest.fixture
async def user(ports: Ports) -> Account:
    return await add_account(ports)


async def login(api: Api, device: str | None = None, password: str = PASSWORD, email: str = EMAIL) -> Answer:
    return await api.login(email, password, headers={} if device is None else {"X-Device-Id": device})


async def guess(api: Api, device: str | None = None, email: str = EMAIL) -> None:
    """Guess passwords as a stranger does, until the address must wait."""
    for _ in range(LIMIT):
        assert (await login(api, device, WRONG, email)).status == 401
    assert (await login(api, device, WRONG, email)).status == 429


async def test_a_client_that_has_signed_in_before_is_not_locked_out(api: Api, user: Account) -> None:
    assert (await login(api, OWN)).status == 200
    await guess(api)
    assert (await login(api)).status == 429
    assert (await login(api, token_urlsafe(16))).status == 429, "another device"
    for _ in range(2):
        assert (await login(api, OWN)).status == 200
    await guess(api, OWN)
    assert (await login(api, OWN)).status == 429, "it has a limit of its own"


@pytest.mark.parametrize("has_second_factor", [False, True])
async def test_a_browser_that_has_signed_in_before_is_not_locked_out(
    app: QuartTrio, api: Api, ports: Ports, user: Account, clock: FakeClock, has_second_factor: bool
) -> None:
    browser = FakeBrowser(app)
    second_factor = await add_mfa(ports, user) if has_second_factor else None
    if second_factor is None:
        assert leads_to(await browser.sign_in()) == HOME
    else:
        await browser.sign_in_with(second_factor)  # without trust
    browser.cookies.pop("gatehouse-session")
    await guess(api)
    assert (await FakeBrowser(app).sign_in()).status == 429
    target = leads_to(await browser.sign_in())
    assert target == HOME if second_factor is None else is_step(target, "code")


async def test_the_device_must_be_known_to_this_account_and_not_revoked(api: Api, ports: Ports, pool: Pool, user: Account) -> None:
    await add_account(ports, "eve@example.com")
    assert (await login(api, OWN, email="eve@example.com")).status == 200
    await guess(api)
    assert (await login(api, OWN)).status == 429, "it is known to another account"
    await run_sql(pool, "delete from guesses")
    assert (await login(api, OWN)).status == 200
    await run_sql(pool, "update devices set revoked_at = now() where user_id = %s", user.id)
    await guess(api)
    assert (await login(api, OWN)).status == 429, "it was revoked"


async def test_a_device_id_that_can_be_guessed_does_not_count(api: Api, user: Account) -> None:
    for device in ("phone", OWN[:-1]):
        assert (await login(api, device)).status == 200
    await guess(api)
    for device in ("phone", OWN[:-1]):
        assert (await login(api, device)).status == 429


async def test_twenty_guesses_at_once_on_the_own_device_are_bounded(api: Api, user: Account, pool: Pool) -> None:
    assert (await login(api, OWN)).status == 200
    answers = await run_concurrently(20, lambda _: login(api, OWN, WRONG))
    assert sorted(answer.status for answer in answers) == [401] * LIMIT + [429] * (20 - LIMIT)
    [(device,)] = await run_sql(pool, "select id from devices where user_id = %s", user.id)
    assert isinstance(device, UUID)
    assert await run_sql(pool, "select subject = sha256(uuid_send(%s)) from guesses", device) == [(True,)]


async def test_a_reset_ends_the_wait_of_the_own_device_too(api: Api, ports: Ports, user: Account, sent: FakeMailTransport) -> None:
    assert (await login(api, OWN)).status == 200
    await guess(api, OWN)
    await guess(api)
    await api.post("/api/auth/forgot-password", {"email": EMAIL})
    await deliver(ports)
    assert (await api.post("/api/auth/reset-password", {"token": link(sent.emails[-1]), "new_password": NEW_PASSWORD})).status == 200
    for device in (OWN, None):
        assert (await login(api, device, NEW_PASSWORD)).status == 200


async def test_strangers_do_not_block_a_password_that_is_asked_in_a_session(api: Api, user: Account) -> None:
    token = (await login(api, OWN)).json["access_token"]
    await guess(api)
    passwords = {"current_password": PASSWORD, "new_password": NEW_PASSWORD}
    assert (await api.post("/api/user/change-password", {**passwords, "current_password": WRONG}, token=token)).status == 401
    assert (await api.post("/api/user/change-password", passwords, token=token)).status == 200
