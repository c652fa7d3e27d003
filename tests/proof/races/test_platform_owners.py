"""Races between platform owners (security I-1, Z-3, Z-5, Z-6)."""

from collections.abc import Sequence
from functools import partial
from uuid import UUID

import pytest

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from ports import Ports
from tests.support.builders import Answer, Api, add_account, add_platform_owner, run_concurrently, run_during, run_sql, sign_in
from tests.support.platform import Platform
from tests.support.refusals import BAD, FORBIDDEN, refused

OWNERS = "/api/platform/owners"
DEMOTION = "update users set is_platform_owner = false where id = %s"


async def owners(pool: Pool) -> set[UUID]:
    return {id_ for (id_,) in await run_sql(pool, "select id from users where is_platform_owner")}


async def another(ports: Ports, number: int = 0) -> tuple[Account, str]:
    account = await add_platform_owner(ports, f"owner-{number}@platform.example")
    return account, (await sign_in(ports, account)).access_token


async def demote(api: Api, tokens: Sequence[str], targets: Sequence[UUID], number: int) -> Answer:
    return await api.delete(f"{OWNERS}/{targets[number]}", token=tokens[number])


@pytest.mark.slow
async def test_of_two_owners_who_demote_each_other_one_remains(platform: Platform, ports: Ports, pool: Pool, api: Api) -> None:
    for round_ in range(10):
        other, token = await another(ports, round_)
        tokens = [platform.token, token]
        targets = [other.id, platform.account.id]
        answers = await run_concurrently(2, partial(demote, api, tokens, targets))
        assert sorted(answer.status for answer in answers) in ([200, 400], [200, 403])  # 403: refused before the use case
        assert len(await owners(pool)) == 1
        await run_sql(pool, "update users set is_platform_owner = id = %s", platform.account.id)


@pytest.mark.slow
async def test_of_20_owners_who_demote_each_other_some_remain(platform: Platform, ports: Ports, pool: Pool, api: Api) -> None:
    people = [(platform.account, platform.token), *[await another(ports, number) for number in range(19)]]
    ids = [account.id for account, _ in people]
    answers = await run_concurrently(20, partial(demote, api, [token for _, token in people], ids[1:] + ids[:1]))
    assert {answer.status for answer in answers} <= {200, 400, 403}
    remaining = await owners(pool)
    assert remaining
    demotions = await run_sql(pool, "select target_id from audit_log where action = 'platform.owner.demoted'")
    assert {UUID(target) for (target,) in demotions} == {*ids} - remaining
    assert len(demotions) == [answer.status for answer in answers].count(200) == 20 - len(remaining)


@pytest.mark.slow
async def test_of_20_concurrent_promotions_one_is_recorded(platform: Platform, ports: Ports, pool: Pool, api: Api) -> None:
    user = await add_account(ports, "ada@example.com", None, mfa_enabled_at=ports.clock.now())
    answers = await run_concurrently(20, lambda _: api.post(OWNERS, {"user_id": str(user.id)}, token=platform.token))
    assert [answer.status for answer in answers] == [200] * 20
    assert await run_sql(pool, "select action from audit_log") == [("platform.owner.promoted",)]


@pytest.mark.slow
async def test_owners_who_remove_each_others_second_factor_do_not_deadlock(platform: Platform, ports: Ports, pool: Pool, api: Api) -> None:
    people = [(platform.account, platform.token), await another(ports)]
    for _ in range(5):
        await run_sql(pool, "update users set mfa_enabled_at = now()")
        await run_sql(pool, "update sessions set ended_at = null")
        answers = await run_concurrently(
            20, lambda number: api.delete(f"/api/platform/users/{people[number % 2][0].id}/mfa?reason=x", token=people[1 - number % 2][1])
        )
        assert {answer.status for answer in answers} <= {200, 401}  # 401: the other owner was faster, and has ended the session


async def remove_mfa(platform: Platform, user: UUID) -> Answer:
    return await platform.api.delete(f"/api/platform/users/{user}/mfa?reason=x", token=platform.token)


async def test_a_caller_demoted_during_the_request_changes_nothing(platform: Platform, ports: Ports, pool: Pool) -> None:
    await add_platform_owner(ports, "third@platform.example")
    other, user = (await another(ports))[0], await add_account(ports, "ada@example.com", None, mfa_enabled_at=ports.clock.now())
    changes = [
        lambda: platform.api.post(OWNERS, {"user_id": str(user.id)}, token=platform.token),
        lambda: platform.api.delete(f"{OWNERS}/{other.id}", token=platform.token),
        lambda: remove_mfa(platform, user.id),
    ]
    for change in changes:
        answer = await run_during(pool, [(DEMOTION, (platform.account.id,))], change)
        assert refused(answer) == FORBIDDEN
        assert other.id in await owners(pool)
        await run_sql(pool, "update users set is_platform_owner = true where id = %s", platform.account.id)
    assert await run_sql(pool, "select 1 from audit_log") == []


async def test_the_owner_left_by_the_demotion_of_the_caller_is_the_last_one(platform: Platform, ports: Ports, pool: Pool) -> None:
    other, _ = await another(ports)
    changes = [(DEMOTION, (platform.account.id,))]
    answer = await run_during(pool, changes, lambda: platform.api.delete(f"{OWNERS}/{other.id}", token=platform.token))
    assert refused(answer) == BAD
    assert "last platform owner" in answer.json["error"]
    assert await owners(pool) == {other.id}


async def test_a_user_deactivated_during_the_request_is_not_promoted(platform: Platform, ports: Ports, pool: Pool) -> None:
    user = await add_account(ports, "ada@example.com", None, mfa_enabled_at=ports.clock.now())
    changes = [("update users set deactivated_at = now() where id = %s", (user.id,))]
    answer = await run_during(pool, changes, lambda: platform.api.post(OWNERS, {"user_id": str(user.id)}, token=platform.token))
    assert refused(answer) == BAD
    assert await owners(pool) == {platform.account.id}
