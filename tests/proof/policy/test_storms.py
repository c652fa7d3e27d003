"""Policies that are saved while users sign in, refresh, and set up or delete factors."""

from collections import Counter

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.proof.policy.world import ALLOWED, ENROLL, STATES, World, new_world, outcome_of
from tests.support.builders import PASSWORD, Api, run_concurrently, run_sql, sign_in
from tests.support.mfa import add_mfa

SECOND_FACTOR = {"second_factor": ["everyone"]}
TARGET = {"org_slug": "acme", "service_slug": "shop"}


@pytest.fixture
async def world(api: Api, app: QuartTrio, ports: Ports, pool: Pool, clock: FakeClock) -> World:
    return await new_world(api, app, ports, pool, clock)


async def live_tokens(world: World) -> Counter[str]:
    """Return how many of Ada's sessions at the application and in Acme can be renewed now, and why the rest cannot."""
    rows = await run_sql(
        world.pool,
        """
        select count(*) filter (where y.version = p.version and y.valid_until > %s) as passes, count(*)
        from sessions s join sign_in_policies p on p.org_id = s.org_id and p.service_id is null
        left join policy_passes y on y.session_id = s.id and y.org_id = s.org_id
        where s.user_id = %s and s.ended_at is null and s.service_id is not null""",
        world.clock.now(),
        world.ada.id,
    )
    return Counter(passes=rows[0][0], sessions=rows[0][1])


@pytest.mark.slow
async def test_a_policy_saved_during_sign_ins_leaves_no_session_that_it_forbids(world: World) -> None:
    """Sign-ins before the save end up without a pass, so that their next use is judged by the new policy."""
    await world.enter(STATES["bare"])
    await world.put({})

    async def act(number: int) -> str:
        if number == 4:
            await world.put(SECOND_FACTOR)
            return "saved"
        body = {"email": world.ada.email, "password": PASSWORD, **TARGET}
        answer = await world.api.post("/api/auth/login", body)
        return outcome_of(answer) if answer.status != 200 else str(answer.json["refresh_token"])

    results = await run_concurrently(9, act)  # ten passwords at once would lock the account
    tokens = [result for result in results if result not in (ENROLL, "saved")]
    assert (await live_tokens(world))["passes"] == 0
    for token in tokens:
        assert outcome_of(await world.send("/auth/token", grant_type="refresh_token", refresh_token=token)) == ENROLL


@pytest.mark.slow
async def test_a_policy_saved_during_refreshes_uses_up_no_refused_token(world: World) -> None:
    """A refused refresh leaves its token, which works after the user has set up the factor in that session."""
    await world.enter(STATES["bare"])
    await world.put({})
    sessions = [await sign_in(world.ports, world.ada, world.org) for _ in range(19)]
    for session in sessions:
        await world.prove(session.session_id)

    async def act(number: int) -> str:
        if number == 19:
            await world.put(SECOND_FACTOR)
            return "saved"
        answer = await world.api.post("/api/auth/refresh", {"refresh_token": sessions[number].refresh_token})
        if answer.status != 200:
            return outcome_of(answer)
        assert outcome_of(await world.api.get("/api/organizations/acme/members", token=answer.json["access_token"])) in (ALLOWED, ENROLL)
        return ALLOWED

    results = await run_concurrently(20, act)
    assert set(results) <= {ALLOWED, ENROLL, "saved"}
    await add_mfa(world.ports, world.ada)
    world.state = STATES["code used"]
    for session, result in zip(sessions, results, strict=False):
        await world.prove(session.session_id)
        answer = await world.api.post("/api/auth/refresh", {"refresh_token": session.refresh_token})
        assert (answer.status == 200) == (result == ENROLL), "a refused refresh did not use the token up"


@pytest.mark.slow
async def test_a_factor_set_up_and_deleted_during_requests_leaves_no_wrong_answer(world: World) -> None:
    """Every answer fits the policy with the factors that the account had at some moment."""
    await world.enter(STATES["bare"])
    await world.put(SECOND_FACTOR)

    async def act(number: int) -> str:
        if number == 5:
            await run_sql(world.pool, "update users set passkey_count = 1 where id = %s", world.ada.id)
            return "added"
        if number == 15:
            await run_sql(world.pool, "update users set passkey_count = 0 where id = %s", world.ada.id)
            return "deleted"
        return outcome_of(await world.api.get("/api/organizations/acme/members", token=world.token))

    assert set(await run_concurrently(20, act)) <= {ENROLL, "step up", "added", "deleted"}
    await run_sql(world.pool, "update users set passkey_count = 0 where id = %s", world.ada.id)
    assert outcome_of(await world.api.get("/api/organizations/acme/members", token=world.token)) == ENROLL


@pytest.mark.slow
async def test_the_same_session_is_judged_by_twenty_at_once(world: World) -> None:
    """They store a single pass."""
    await world.enter(STATES["code used"])
    await world.put(SECOND_FACTOR)

    async def act(_: int) -> str:
        return outcome_of(await world.api.get("/api/organizations/acme/members", token=world.token))

    assert set(await run_concurrently(20, act)) == {ALLOWED}
    assert world.session is not None
    assert await run_sql(world.pool, "select count(*) from policy_passes where session_id = %s", world.session.session_id) == [(1,)]
