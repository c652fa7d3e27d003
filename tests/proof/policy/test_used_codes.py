"""Codes that were right are used up, also if a sign-in policy then refuses the user (security SP-6)."""

from datetime import timedelta
from typing import Any

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.proof.policy.test_paths import PATHS
from tests.proof.policy.world import ALLOWED, STATES, World, new_world
from tests.support.builders import PASSWORD, Api, run_sql
from tests.support.passkeys.users import PasskeyUser, sign_in_options

TO_SHOP = {"org_slug": "acme", "service_slug": "shop"}


@pytest.fixture
async def world(api: Api, app: QuartTrio, ports: Ports, pool: Pool, clock: FakeClock) -> World:
    return await new_world(api, app, ports, pool, clock)


async def lift(world: World) -> None:
    """Remove Acme's policy."""
    await run_sql(world.pool, "update organizations set sign_in_policy_version = null")
    await run_sql(world.pool, "delete from sign_in_policies")


async def test_an_authorization_code(world: World) -> None:
    await world.enter(STATES["bare"])
    code = await world.code()
    await world.put({"second_factor": ["everyone"]})
    assert (await world.exchange(code)).json["error"] == "invalid_grant"
    assert await run_sql(world.pool, "select count(*) from sessions where service_id is not null") == [(0,)]
    await lift(world)
    assert (await world.exchange(code)).json["error"] == "invalid_grant"
    assert (await world.exchange(await world.code())).status == 200


async def test_a_device_code(world: World) -> None:
    await world.enter(STATES["bare"])
    used, approved = [await PATHS["device"].prepare(world) for _ in range(2)]
    await world.put({"second_factor": ["everyone"]})
    assert await PATHS["device"].walk(world, used) == "invalid grant"
    assert await run_sql(world.pool, "select count(*) from sessions where service_id is not null") == [(0,)]
    await lift(world)
    grant = "urn:ietf:params:oauth:grant-type:device_code"
    again: Any = used
    answer = await world.send("/auth/token", with_secret=False, grant_type=grant, device_code=again["device_code"])
    assert (answer.status, answer.json["error"]) == (400, "invalid_grant")
    assert await PATHS["device"].walk(world, approved) == ALLOWED


async def test_a_code_of_an_app(world: World) -> None:
    await world.enter(STATES["code left out"])
    assert world.authenticator is not None
    code = world.authenticator.code(1)

    async def sign_in() -> int:
        first = await world.api.post("/api/auth/login", {"email": world.ada.email, "password": PASSWORD, **TO_SHOP})
        return (await world.api.post("/api/auth/mfa/verify", {"code": code}, token=first.json["access_token"])).status

    await world.put({"phishing_resistant": ["everyone"]})
    assert await sign_in() == 403
    assert ("mfa_verify_success",) in await run_sql(world.pool, "select event_type from mfa_events")
    await lift(world)
    assert await sign_in() == 401
    world.clock.advance(timedelta(minutes=1))
    code = world.authenticator.code(1)
    assert await sign_in() == 200


async def test_the_challenge_of_a_passkey(world: World) -> None:
    await world.enter(STATES["bare"])
    holder = PasskeyUser(world.api, world.token)
    await holder.add()

    async def sign() -> Any:
        return holder.authenticator.get(await sign_in_options(world.api))

    async def send(credential: Any) -> tuple[int, str | None]:
        answer = await world.api.post("/api/auth/passkey", {"credential": credential, **TO_SHOP})
        return answer.status, answer.json.get("rule")

    await world.put({"methods": ["password"]})
    used = await sign()
    assert await send(used) == (401, "methods")
    await lift(world)
    assert [await send(used), await send(await sign())] == [(401, None), (200, None)]


async def test_the_challenge_of_a_security_key(world: World) -> None:
    await world.enter(STATES["bare"])
    holder = PasskeyUser(world.api, world.token)
    await holder.add_key(second_factor=True)

    async def start() -> tuple[str, Any]:
        login = (await world.api.post("/api/auth/login", {"email": world.ada.email, "password": PASSWORD, **TO_SHOP})).json
        return login["access_token"], holder.authenticator.get(login["passkey_options"])

    async def send(token: str, credential: Any) -> int:
        return (await world.api.post("/api/auth/mfa/verify", {"passkey": credential}, token=token)).status

    await world.put({"methods": ["passkey"]})
    used = await start()
    assert await send(*used) == 403
    await lift(world)
    assert [await send(*used), await send(*await start())] == [401, 200]
