"""A session that began at an organization's connection, on every path to another session or a token (docs/adr/0047)."""

import json
from datetime import timedelta
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

import pytest
from quart_trio import QuartTrio

from adapters.postgres.accounts.accounts import profile_parameters
from adapters.postgres.engine.pool import Pool
from core.accounts.model.profiles import Profile
from core.authentication.model.openid import Scope
from core.federation.connections import logins
from core.federation.connections.model.connections import ConnectionIdentity
from core.kernel.causes import SYSTEM
from core.kernel.proofs import Method, Proof, Proofs, first_proof
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.proof.policy.test_paths import PATHS
from tests.proof.policy.world import ALLOWED, STEP_UP, World, new_world
from tests.support.builders import Answer, Api, run_concurrently, run_sql, sign_in
from tests.support.connections import add_connection, add_login
from tests.support.connections.proofs import connection_proof, merged, write_proofs

OTHER: Final = UUID(int=7)
PATHS_OF_SESSIONS: Final = (
    *("API", "selection", "console", "approval of a device", "approval of a device in a browser"),
    *("authorization", "silent authorization", "SAML", "passive SAML", "SAML without a request", "SAML over the API"),
)
DETAILS: Final = {"picture": "https://example.com/ada.png", "nickname": "Countess", "birthdate": "1815-12-10", "zoneinfo": "Europe/London"}
NAMES: Final = {"name": "Ada Lovelace", "given_name": "Ada", "family_name": "Lovelace"}


@pytest.fixture
async def world(api: Api, app: QuartTrio, ports: Ports, pool: Pool, clock: FakeClock) -> World:
    world = await new_world(api, app, ports, pool, clock)
    await world.enter(world.state)
    return world


@pytest.mark.slow
async def test_each_path_sees_the_proofs_of_its_organization_alone(world: World, clock: FakeClock, pool: Pool) -> None:
    wrong, now = list[str](), clock.now()
    states: dict[str, tuple[Proofs, str]] = {
        "restricted here": ((connection_proof(world.org, now),), ALLOWED),
        "restricted elsewhere": ((connection_proof(OTHER, now),), STEP_UP),
        "merged": (merged(OTHER, now), ALLOWED),
    }
    for name in PATHS_OF_SESSIONS:
        for state, (proofs, expected) in states.items():
            path = PATHS[name]
            prepared = await path.prepare(world)
            await write_proofs(pool, world.ada.id, proofs)
            if (outcome := await path.walk(world, prepared)) != expected:
                wrong.append(f"{name}, {state}: {outcome} instead of {expected}")
            await write_proofs(pool, world.ada.id, (first_proof("password", now),))
    assert not wrong, "\n".join(wrong)


async def test_a_provider_that_does_not_ask_makes_a_session_of_a_connection_no_newer(world: World, clock: FakeClock, pool: Pool) -> None:
    """Neither does a silent sign-in by the account's own provider, which is the session's first own factor."""
    await write_proofs(pool, world.ada.id, (connection_proof(world.org, clock.now()),))
    clock.advance(timedelta(minutes=11))
    await world.sign_in_silently()
    prepared = {name: await PATHS[name].prepare(world) for name in PATHS_OF_SESSIONS}
    await world.put({"session_lifetime_minutes": 10})
    outcomes = {name: await PATHS[name].walk(world, prepared[name]) for name in PATHS_OF_SESSIONS}
    assert outcomes == dict.fromkeys(PATHS_OF_SESSIONS, STEP_UP)


async def test_a_provider_that_does_not_ask_keeps_the_last_use_of_the_organization(world: World, clock: FakeClock) -> None:
    await world.put({"session_idle_minutes": 5})
    console, outcomes = PATHS["console"].walk, list[str]()
    for minutes in (4, 4, 4, 6):
        clock.advance(timedelta(minutes=minutes))
        await world.sign_in_silently()
        outcomes.append(await console(world, None))
    assert outcomes == [ALLOWED, ALLOWED, ALLOWED, STEP_UP]


async def test_codes_of_a_session_that_is_good_elsewhere_start_no_session(world: World, clock: FakeClock, pool: Pool) -> None:
    device = await PATHS["device"].prepare(world)
    code = await world.code()
    await write_proofs(pool, world.ada.id, (connection_proof(OTHER, clock.now()),))
    before = await run_sql(pool, "select count(*) from sessions")
    grant = "urn:ietf:params:oauth:grant-type:device_code"
    poll = await world.send("/auth/token", with_secret=False, grant_type=grant, device_code=_code_of(device))
    for answer in (await world.exchange(code), poll):
        assert answer.status == 400, answer.text
    assert await run_sql(pool, "select count(*) from sessions") == before


def _code_of(device: Any) -> str:
    return str(device["device_code"])


async def test_a_session_of_an_application_has_the_restriction_and_the_end_of_the_session_that_approved_it(
    world: World, clock: FakeClock, pool: Pool
) -> None:
    now, end = clock.now(), clock.now() + timedelta(hours=2)
    await write_proofs(pool, world.ada.id, (connection_proof(world.org, now, until=end),))
    assert (await world.exchange(await world.code())).status == 200
    of_application = "select restricted_to, ends_at from sessions where service_id = %s order by created_at desc limit 1"
    assert await run_sql(pool, of_application, world.service) == [(world.org, end)]
    await write_proofs(pool, world.ada.id, (first_proof("password", now), connection_proof(world.org, now, until=end)))
    assert (await world.exchange(await world.code())).status == 200
    ends = await run_sql(pool, "select ends_at > %s from sessions where service_id = %s order by ends_at", end, world.service)
    assert ends == [(False,), (True,)], "with an own proof, the session has its own end"


async def test_an_application_learns_only_the_names_unless_its_organization_created_the_account(
    world: World, clock: FakeClock, pool: Pool
) -> None:
    profile = Profile(**DETAILS, **NAMES)
    columns = profile_parameters(profile)
    names = ", ".join(f"{name} = %s" for name in columns)
    await run_sql(pool, f"update users set {names} where id = %s", *columns.values(), world.ada.id)  # noqa: S608  (names of columns)
    async with world.ports.storage.transaction(by=SYSTEM) as tx:
        await tx.consents.add(world.org, world.service, world.ada.id, (Scope.OPENID, Scope.PROFILE), clock.now())
    proofs = (connection_proof(world.org, clock.now()),)
    for origin, details in ((None, {}), (OTHER, {}), (world.org, DETAILS)):
        await run_sql(pool, "update users set origin_org_id = %s where id = %s", origin, world.ada.id)
        await write_proofs(pool, world.ada.id, proofs)
        location = (await world.authorize(response_type="code", scope="openid profile")).headers["Location"]
        tokens = (await world.exchange(parse_qs(urlsplit(location).query)["code"][0])).json
        shown = (await world.api.get("/auth/userinfo", token=tokens["access_token"])).json
        assert {name: shown[name] for name in (*DETAILS, *NAMES) if name in shown} == {**details, **NAMES}, origin
        refreshed = await world.send("/auth/token", grant_type="refresh_token", refresh_token=tokens["refresh_token"])
        assert refreshed.status == 200, refreshed.text
        profile = (await world.api.get("/api/user", token=world.token)).json
        assert (profile["name"], profile["picture"]) == (NAMES["name"], None)


@pytest.mark.slow
@pytest.mark.parametrize("of_session", [False, True])
@pytest.mark.parametrize("is_merged", [False, True])
async def test_the_end_of_a_connection_leaves_no_session_with_its_proof(
    world: World, clock: FakeClock, pool: Pool, *, is_merged: bool, of_session: bool
) -> None:
    """Codes, refresh tokens and selections at the same moment start or keep none. `of_session`: only the session there ends."""
    now, storage = clock.now(), world.ports.storage
    connection = await add_connection(storage, world.org)
    identity = ConnectionIdentity(
        org_id=world.org, connection_id=connection.id, user_id=world.ada.id, subject="4711", email=None, linked_at=now, last_used_at=now
    )
    async with storage.transaction(by=SYSTEM) as tx:
        await tx.connection_identities.add(identity)
    login = await add_login(storage, connection, world.ada.id)
    proof = Proof(Method.CONNECTION, now, connection=connection.id, org=world.org, login=login.id)
    own = [await sign_in(world.ports, world.ada, world.org) for _ in range(6)]
    await write_proofs(pool, world.ada.id, (first_proof("password", now), proof) if is_merged else (proof,))
    codes = [await world.code() for _ in range(6)]
    tokens = [(await world.exchange(await world.code())).json["refresh_token"] for _ in range(7)]

    async def act(number: int) -> Answer | None:
        kind, index = number % 3, number // 3
        if number == 9:
            async with storage.transaction(by=SYSTEM) as tx:
                assert await logins.end_at_provider(tx, connection, world.ada.id, "s1" if of_session else None, now) == 1
            return None
        if kind == 0:
            return await world.exchange(codes[index - (number > 9)])
        if kind == 1:
            return await world.send("/auth/token", grant_type="refresh_token", refresh_token=tokens[index])
        return await world.api.post("/api/organizations/acme/select", token=own[index].access_token)

    answers = [answer for answer in await run_concurrently(20, act) if answer is not None]
    assert {answer.status for answer in answers} <= {200, 400, 401}, [answer.text for answer in answers]
    with_proof = "select count(*) from sessions where ended_at is null and proofs @> %s::jsonb"
    assert await run_sql(pool, with_proof, json.dumps([{"connection": str(connection.id)}])) == [(0,)]
    alive = "select count(*) > 0 from sessions where ended_at is null"
    assert await run_sql(pool, alive) == [(is_merged,)], "only own proofs keep a session"
