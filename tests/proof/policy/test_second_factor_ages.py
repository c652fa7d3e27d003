"""Every question about a sign-in counts a second factor that is at most 10 minutes older than its first factor, and no older second factor.

The session had the two factors earlier, and then its user proved a first factor alone (security A-12).
"""

from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

import jwt
import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.authentication.model.openid import Scope
from core.kernel.causes import SYSTEM
from core.kernel.proofs import Method, Proof, Proofs, first_proof
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.proof.policy.test_flows import code_of
from tests.proof.policy.test_paths import PATHS
from tests.proof.policy.world import ALLOWED, STATES, STEP_UP, World, new_world
from tests.support.builders import Api, run_sql
from tests.support.connections.proofs import connection_proof, write_proofs

OPENID: Final = {"response_type": "code", "scope": "openid", "prompt": "none"}
OF_POLICY: Final = ("API", "console", "silent authorization", "passive SAML", "SAML over the API", "approval of a device")
OF_SETTINGS: Final = ("silent authorization", "passive SAML")


@pytest.fixture
async def world(api: Api, app: QuartTrio, ports: Ports, pool: Pool, clock: FakeClock) -> World:
    world = await new_world(api, app, ports, pool, clock)
    await world.enter(STATES["code used"])
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.consents.add(world.org, world.service, world.ada.id, (Scope.OPENID,), clock.now())
    return world


def proofs_of(org_id: UUID, first: str, second: Method, minutes: int, now: datetime) -> Proofs:
    """Return a session's proofs: two factors some minutes ago, and a newer first factor."""
    at = now - timedelta(minutes=minutes)
    earlier = first_proof("email" if first == "password" else "password", at)
    return earlier, Proof(second, at), connection_proof(org_id, now) if first == "connection" else first_proof(first, now)


@pytest.mark.slow
@pytest.mark.parametrize("minutes", [0, 9, 11, 600])
@pytest.mark.parametrize("second", [Method.TOTP, Method.PASSKEY])
@pytest.mark.parametrize("first", ["password", "email", "websuite", "connection"])
async def test_no_path_counts_an_older_second_factor(world: World, first: str, second: Method, minutes: int) -> None:
    now, counts = world.clock.now(), minutes <= 10
    wrong, expected = list[str](), ALLOWED if counts else STEP_UP
    proofs = proofs_of(world.org, first, second, minutes, now)
    prepared = {name: await PATHS[name].prepare(world) for name in {*OF_POLICY, *OF_SETTINGS}}
    await write_proofs(world.pool, world.ada.id, proofs)
    tokens = await world.exchange(code_of(await world.authorize(**OPENID)))
    claims = jwt.decode(tokens.json["id_token"], options={"verify_signature": False})
    assert (claims["acr"], "mfa" in claims.get("amr", [])) == ("mfa" if counts else "pwd", counts)
    assert claims["auth_time"] == int(now.timestamp())
    silently = await world.authorize(**OPENID, max_age="600")
    assert ("code=" in silently.headers["Location"]) is counts, "the sign-in lacks a factor of the account"
    fresh = await world.api.post("/api/user/mfa/backup-codes/regenerate", token=world.token)
    assert fresh.status == (200 if counts else 401), fresh.text

    async def walk(names: tuple[str, ...], asks_by: str) -> None:
        for name in names:
            if (outcome := await PATHS[name].walk(world, prepared[name])) != expected:
                wrong.append(f"{name}, {asks_by}: {outcome} instead of {expected}")

    await run_sql(world.pool, "update services set required_acr = 'mfa'")
    await walk(OF_SETTINGS, "settings")
    await run_sql(world.pool, "update services set required_acr = null")
    await world.put({"second_factor": ["everyone"], "session_lifetime_minutes": 10})
    await walk(OF_POLICY, "policy")
    assert not wrong, "\n".join(wrong)
