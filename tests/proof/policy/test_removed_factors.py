"""A factor that the account no longer has counts as a second factor in no session (security A-12)."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.kernel.proofs import Method, Proof, first_proof
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.proof.policy.test_flows import code_of
from tests.proof.policy.world import ALLOWED, STATES, STEP_UP, World, new_world, outcome_of, outcome_of_flow, outcome_of_page
from tests.support.browser import leads_to
from tests.support.builders import PASSWORD, Api, run_sql, sign_in
from tests.support.connections.proofs import write_proofs
from tests.support.passkeys.users import PASSKEYS, PasskeyUser

SECOND_FACTOR: Final[dict[str, Any]] = {"second_factor": ["everyone"]}
REAUTHENTICATE: Final = "/api/auth/reauthenticate"
MEMBERS: Final = "/api/organizations/acme/members"
CONSOLE: Final = "/app/organizations/acme"


@dataclass(frozen=True, slots=True)
class Keys:
    """The user's second session, which shows the passkey (security PK-12) and removes a factor, and the ids of the user's keys."""

    holder: PasskeyUser
    passkey: UUID
    key: UUID

    async def call(self, method: str, path: str, body: Any = None) -> None:
        answer = await self.holder.api.call(method, path, body, token=self.holder.token)
        assert answer.status < 300, answer.text


async def disable_app(_: World, keys: Keys) -> None:
    await keys.call("DELETE", "/api/user/mfa")


async def delete_key(_: World, keys: Keys) -> None:
    await keys.call("DELETE", f"{PASSKEYS}/{keys.key}")


async def delete_passkey(_: World, keys: Keys) -> None:
    await keys.call("DELETE", f"{PASSKEYS}/{keys.passkey}")


async def turn_off_keys(_: World, keys: Keys) -> None:
    await keys.call("PUT", f"{PASSKEYS}/second-factor", {"enabled": False})


async def replace_codes(_: World, keys: Keys) -> None:
    await keys.call("POST", "/api/user/mfa/backup-codes/regenerate")


async def replace_app_by_key(world: World, keys: Keys) -> None:
    """The account has no second factor for a moment, which the policy would refuse."""
    await world.put({})
    await turn_off_keys(world, keys)
    await disable_app(world, keys)
    await keys.call("PUT", f"{PASSKEYS}/second-factor", {"enabled": True})
    await world.put(SECOND_FACTOR)


Made = Callable[[datetime, Keys], Proof]


def second(method: Method) -> Made:
    return lambda at, _: Proof(method, at)


def by_key(at: datetime, keys: Keys) -> Proof:
    return Proof(Method.PASSKEY, at, phishing_resistant=True, passkey=keys.key)


def by_passkey(at: datetime, keys: Keys) -> Proof:
    return Proof(Method.PASSKEY, at, user_verified=True, phishing_resistant=True, passkey=keys.passkey)


# The session's proof, and how its factor leaves the account. The account always keeps another second factor.
Removal = Callable[[World, Keys], Awaitable[None]]
WAYS: Final[Mapping[str, tuple[Made, Removal]]] = {
    "the app is disabled": (second(Method.TOTP), disable_app),
    "the security key is deleted": (by_key, delete_key),
    "the passkey is deleted": (by_passkey, delete_passkey),
    "keys are no longer a second factor": (by_key, turn_off_keys),
    "backup codes are replaced": (second(Method.BACKUP_CODE), replace_codes),
    "a key replaces the app": (second(Method.TOTP), replace_app_by_key),
}


@pytest.fixture
async def world(api: Api, app: QuartTrio, ports: Ports, pool: Pool, clock: FakeClock) -> World:
    """Ada has an API session and a browser session."""
    world = await new_world(api, app, ports, pool, clock)
    await world.enter(STATES["code used"])
    return world


@pytest.fixture
async def keys(world: World) -> Keys:
    holder = PasskeyUser(world.api, (await sign_in(world.ports, world.ada)).access_token)
    await prove(world, Proof(Method.TOTP, world.clock.now()))
    passkey = (await holder.add())["id"]
    key = (await PasskeyUser(world.api, holder.token).add_key(second_factor=True))["id"]
    return Keys(holder, UUID(passkey), UUID(key))


async def prove(world: World, proof: Proof) -> None:
    """Give all the user's sessions this proof, and if it is a second factor, the password's proof too."""
    await write_proofs(world.pool, world.ada.id, (proof,) if proof.user_verified else (first_proof("password", proof.at), proof))
    await run_sql(world.pool, "update sessions set mfa_missing = false")


async def confirm_on_page(world: World) -> str:
    """Confirm with the password alone on the page to which the console leads, and return the console's outcome."""
    page = await world.browser.open(leads_to(await world.browser.open(CONSOLE, follows=False)))
    await world.browser.fill(page, password=PASSWORD)
    return outcome_of_page(await world.browser.open(CONSOLE, follows=False))


@pytest.mark.parametrize("way", WAYS)
async def test_a_removed_factor_counts_nowhere(world: World, keys: Keys, way: str) -> None:
    made, remove = WAYS[way]
    await prove(world, made(world.clock.now(), keys))
    await world.put(SECOND_FACTOR)
    tokens = (await world.exchange(code_of(await world.authorize(prompt="none")))).json
    assert outcome_of(await world.api.get(MEMBERS, token=world.token)) == ALLOWED
    assert outcome_of_page(await world.browser.open(CONSOLE, follows=False)) == ALLOWED
    await keys.holder.confirm()
    await remove(world, keys)
    refresh = await world.send("/auth/token", grant_type="refresh_token", refresh_token=tokens["refresh_token"])
    found = {
        "refresh": outcome_of(refresh),
        "API": outcome_of(await world.api.get(MEMBERS, token=world.token)),
        "console": outcome_of_page(await world.browser.open(CONSOLE, follows=False)),
        "silent sign-in": await outcome_of_flow(world, await world.authorize(prompt="none")),
    }
    assert found == dict.fromkeys(found, STEP_UP)
    assert (await world.api.post(REAUTHENTICATE, {"password": PASSWORD}, token=world.token)).status == 401
    await run_sql(world.pool, "update passkeys set user_verified = false")  # so that the second factor is missing, not the passkey
    assert (await world.api.delete(f"{PASSKEYS}/{keys.passkey}", token=world.token)).status == 401
    assert await confirm_on_page(world) == STEP_UP


@pytest.mark.parametrize("proof", [second(Method.TOTP), by_key, by_passkey], ids=["app", "key", "passkey"])
async def test_other_factors_count_as_before(world: World, keys: Keys, proof: Made) -> None:
    """A session keeps its second factor if another factor leaves the account."""
    await prove(world, proof(world.clock.now(), keys))
    await world.put(SECOND_FACTOR)
    await keys.holder.confirm()
    await (disable_app if proof is by_key else delete_key)(world, keys)
    assert outcome_of(await world.api.get(MEMBERS, token=world.token)) == ALLOWED
    code_of(await world.authorize(prompt="none"))
