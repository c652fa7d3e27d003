"""Selecting an organization: its tokens and its session (decision 51; security S-3, I-3, J-6)."""

from datetime import timedelta
from typing import Any

import pytest

from adapters.postgres.engine.pool import Pool
from core.kernel.values import digest
from ports import Ports
from tests.fakes.outside import FakeClock, FakeMetrics
from tests.support.builders import (
    Answer,
    Api,
    add_account,
    add_member,
    add_organization,
    add_person,
    add_platform_owner,
    impersonate,
    run_concurrently,
    run_sql,
    sign_in,
)
from tests.tenancy.organizations import ACME, ROLES, claims, log, recorded_events, refresh, token_of


@pytest.mark.parametrize("role", ROLES)
async def test_a_selection_returns_tokens_of_the_organization(api: Api, ports: Ports, pool: Pool, role: str) -> None:
    org = await add_organization(pool, "acme")
    user, token = await add_person(ports, pool, "ada", org, role)
    answer = await api.post(f"{ACME}/select", token=token)
    assert answer.status == 200
    assert list(answer.json) == ["user", "membership", "access_token", "refresh_token", "expires_in"]
    assert answer.json["user"] == {"id": str(user.id), "email": "ada@example.com", "is_platform_owner": False}
    [(membership, created)] = await run_sql(pool, "select id, created_at from memberships")
    assert answer.json["membership"] == {
        "id": str(membership),
        "org_id": str(org),
        "user_id": str(user.id),
        "role": role,
        "roles": [role],
        "created_at": created.isoformat().replace("+00:00", "Z"),
    }
    assert answer.json["expires_in"] == 900
    payload = claims(answer.json["access_token"])
    assert (payload["org"], payload["org_id"], payload["sub"], payload["sid"]) == ("acme", str(org), str(user.id), claims(token)["sid"])
    assert (payload["email"], payload["email_verified"], payload["exp"] - payload["iat"]) == ("ada@example.com", True, 900)
    assert "service" not in payload
    assert (await api.get("/api/user", token=answer.json["access_token"])).json["org"] == "acme"
    assert answer.headers["Cache-Control"] == "no-store"


async def test_a_platform_owner_gets_their_membership_role(api: Api, ports: Ports, pool: Pool) -> None:
    org = await add_organization(pool, "acme")
    boss = await add_platform_owner(ports)
    await add_member(pool, org, boss.id)
    answer = await api.post(f"{ACME}/select", token=await token_of(ports, boss))
    assert answer.json["user"]["is_platform_owner"] is True


async def test_an_empty_or_absent_body_is_accepted(api: Api, ports: Ports, pool: Pool) -> None:
    org = await add_organization(pool, "acme")
    _, token = await add_person(ports, pool, "ada", org)
    assert (await api.call("POST", f"{ACME}/select", token=token)).status == 200
    assert (await api.post(f"{ACME}/select", {}, token=token)).status == 200


async def test_the_old_refresh_token_is_used_up(api: Api, ports: Ports, pool: Pool, clock: FakeClock) -> None:
    org = await add_organization(pool, "acme")
    user, _ = await add_person(ports, pool, "ada", org)
    signed_in = await sign_in(ports, user)
    selection = (await api.post(f"{ACME}/select", token=signed_in.access_token)).json
    # The previous token, within the grace period: two tabs may race.
    assert (await refresh(api, signed_in.refresh_token)).status == 401
    renewed = (await refresh(api, selection["refresh_token"])).json
    assert (claims(renewed["access_token"])["org"], claims(renewed["access_token"])["org_id"]) == ("acme", str(org))
    # Later, or an older token: it was stolen, so the session ends.
    clock.advance(timedelta(seconds=11))
    assert (await refresh(api, signed_in.refresh_token)).status == 401
    assert (await refresh(api, renewed["refresh_token"])).status == 401
    assert (await api.get("/api/user", token=renewed["access_token"])).status == 401


async def test_selecting_another_organization_moves_the_session(api: Api, ports: Ports, pool: Pool) -> None:
    org, other_tenant = await add_organization(pool, "acme"), await add_organization(pool, "twin")
    user, token = await add_person(ports, pool, "ada", org)
    await add_member(pool, other_tenant, user.id, "owner")
    first = (await api.post(f"{ACME}/select", token=token)).json
    second = (await api.post("/api/organizations/twin/select", token=first["access_token"])).json
    assert claims(second["access_token"])["org"] == "twin"
    assert second["membership"]["role"] == "owner"
    assert claims((await refresh(api, second["refresh_token"])).json["access_token"])["org"] == "twin"
    assert await run_sql(pool, "select org_id from sessions") == [(other_tenant,)]


async def test_a_selection_is_not_recorded_as_a_login(api: Api, ports: Ports, pool: Pool, metrics: FakeMetrics) -> None:
    org = await add_organization(pool, "acme")
    _, token = await add_person(ports, pool, "ada", org)
    assert (await api.post(f"{ACME}/select", token=token)).status == 200
    assert await run_sql(pool, "select * from login_events") == []
    assert await log(pool) == await recorded_events(pool) == []
    assert metrics.tokens_issued == 1


async def test_a_selection_confirms_the_membership_unless_impersonated(api: Api, ports: Ports, pool: Pool) -> None:
    org = await add_organization(pool, "acme")
    user, token = await add_person(ports, pool, "ada", org)
    support = await add_platform_owner(ports)
    assert (await api.post(f"{ACME}/select", token=await impersonate(ports, support, user))).status == 200
    assert await run_sql(pool, "select confirmed_at from memberships") == [(None,)]
    assert (await api.post(f"{ACME}/select", token=token)).status == 200
    assert await run_sql(pool, "select confirmed_at is not null from memberships") == [(True,)]


async def test_a_session_keeps_its_end(api: Api, ports: Ports, pool: Pool, clock: FakeClock) -> None:
    org = await add_organization(pool, "acme")
    user, _ = await add_person(ports, pool, "ada", org)
    pair = (await sign_in(ports, user)).access_token, ""
    [(ends_at,)] = await run_sql(pool, "select ends_at from sessions where user_id = %s order by created_at desc limit 1", user.id)
    for _ in range(3):
        clock.advance(timedelta(minutes=14))
        selection = (await api.post(f"{ACME}/select", token=pair[0])).json
        pair = selection["access_token"], selection["refresh_token"]
    while clock.now() < ends_at - timedelta(days=20):
        clock.advance(timedelta(days=20))
        renewed = (await refresh(api, pair[1])).json
        selection = (await api.post(f"{ACME}/select", token=renewed["access_token"])).json
        pair = selection["access_token"], selection["refresh_token"]
    clock.advance(ends_at - clock.now() - timedelta(seconds=3))
    renewed = (await refresh(api, pair[1])).json
    last = (await api.post(f"{ACME}/select", token=renewed["access_token"])).json
    assert last["expires_in"] == 3
    clock.advance(timedelta(seconds=3))
    assert (await refresh(api, last["refresh_token"])).status == 401


async def test_a_selection_keeps_the_impersonator_and_the_end(api: Api, ports: Ports, pool: Pool, clock: FakeClock) -> None:
    """(security I-3)"""
    org = await add_organization(pool, "acme")
    user, _ = await add_person(ports, pool, "ada", org, "owner")
    support = await add_platform_owner(ports)
    token = await impersonate(ports, support, user)
    clock.advance(timedelta(minutes=14))
    selection = (await api.post(f"{ACME}/select", token=token)).json
    token = selection["access_token"]
    assert (await api.delete(ACME, token=token)).status == 403
    other, _ = await add_person(ports, pool, "other", org, "member")
    assert (await api.delete(f"{ACME}/members/{other.id}/sessions", token=token)).status == 200
    assert await run_sql(pool, "select actor_id, impersonator_id from audit_log where org_id is not null") == [(user.id, support.id)] * 2
    query = "select max(expires_at - created_at), max(ends_at - created_at) from sessions where impersonator_id = %s"
    assert await run_sql(pool, query, support.id) == [(timedelta(hours=1), timedelta(hours=1))]
    for minutes in (14, 14, 14):
        clock.advance(timedelta(minutes=minutes))
        token = (await api.post(f"{ACME}/select", token=token)).json["access_token"]
    clock.advance(timedelta(minutes=3))
    last = (await api.post(f"{ACME}/select", token=token)).json
    assert last["expires_in"] == 60
    await run_sql(pool, "update users set is_platform_owner = false where id = %s", support.id)
    assert (await api.post(f"{ACME}/select", token=last["access_token"])).status == 401
    assert (await refresh(api, last["refresh_token"])).status == 401


async def live_tokens(pool: Pool) -> int:
    [(count,)] = await run_sql(pool, "select count(*) from refresh_tokens where rotated_at is null")
    return int(count)


@pytest.mark.slow
async def test_twenty_concurrent_selections_leave_one_refresh_token(api: Api, ports: Ports, pool: Pool) -> None:
    org = await add_organization(pool, "acme")
    user = await add_account(ports)
    await add_member(pool, org, user.id)
    token = await token_of(ports, user)
    answers = await run_concurrently(20, lambda _: api.post(f"{ACME}/select", token=token))
    assert {answer.status for answer in answers} == {200}
    assert await live_tokens(pool) == 1
    assert await run_sql(pool, "select count(*), max(generation) from refresh_tokens") == [(21, 21)]
    # A reused token would end the session, so only the newest token is sent.
    [(live_hash,)] = await run_sql(pool, "select token_hash from refresh_tokens where rotated_at is null")
    returned_tokens = sorted((answer.json["refresh_token"] for answer in answers), key=lambda token: digest(token) != live_hash)
    assert [(await refresh(api, token)).status for token in returned_tokens] == [200] + [401] * 19


@pytest.mark.slow
async def test_concurrent_selections_of_different_organizations_all_finish(api: Api, ports: Ports, pool: Pool) -> None:
    """The session's rows are their only common lock. A selection that loses the race for the refresh token tries the next token."""
    user = await add_account(ports)
    for number in range(10):
        await add_member(pool, await add_organization(pool, f"acme-{number}"), user.id)
    token = await token_of(ports, user)
    answers = await run_concurrently(20, lambda number: api.post(f"/api/organizations/acme-{number % 10}/select", token=token))
    assert {answer.status for answer in answers} == {200}
    assert await live_tokens(pool) == 1
    assert await run_sql(pool, "select count(distinct generation), max(generation) from refresh_tokens") == [(21, 21)]


@pytest.mark.slow
async def test_concurrent_selections_and_refreshes_leave_one_refresh_token(api: Api, ports: Ports, pool: Pool) -> None:
    org, other_tenant = await add_organization(pool, "acme"), await add_organization(pool, "twin")
    user = await add_account(ports)
    for one in (org, other_tenant):
        await add_member(pool, one, user.id)
    for _ in range(3):
        signed_in = await sign_in(ports, user)
        await run_sql(pool, "delete from sessions where id <> %s", signed_in.session_id)

        async def act(number: int, session: Any = signed_in) -> Answer:
            match number % 3:
                case 0:
                    return await refresh(api, session.refresh_token)
                case 1:
                    return await api.post(f"{ACME}/select", token=session.access_token)
                case _:
                    return await api.post("/api/organizations/twin/select", token=session.access_token)

        answers = await run_concurrently(20, act)
        # A late refresh finds its token used. A token that is older than the previous token ends
        # the session.
        assert {answer.status for answer in answers} <= {200, 401}
        assert sum("expires_in" in answer.json and "user" not in answer.json for answer in answers) <= 1
        assert await live_tokens(pool) == 1


async def test_a_session_that_ends_during_the_selection_gets_no_tokens(api: Api, ports: Ports, pool: Pool) -> None:
    org = await add_organization(pool, "acme")
    user = await add_account(ports)
    await add_member(pool, org, user.id)
    for _ in range(5):
        token = await token_of(ports, user)

        async def act(number: int, token: str = token) -> Answer:
            return await api.post(f"{ACME}/select" if number else "/api/auth/logout", token=token)

        for answer in await run_concurrently(2, act):
            assert answer.status in (200, 401)
            if "refresh_token" in answer.json:
                assert (await refresh(api, answer.json["refresh_token"])).status == 401
                assert (await api.get("/api/user", token=answer.json["access_token"])).status == 401
