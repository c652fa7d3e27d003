"""A platform owner removes a second factor (decision 243; security M-7)."""

from typing import Any
from uuid import UUID, uuid4

import pytest

from adapters.postgres.engine.pool import Pool
from core.accounts import platform
from core.kernel.access import NotAPlatformOwner
from core.kernel.callers import Person
from core.kernel.causes import SYSTEM
from ports import Ports
from tests.accounts.api.platform_paths import UNKNOWN_ID, mfa_status, remove_mfa, with_mfa
from tests.fakes.outside import FakeMailTransport
from tests.support.builders import add_account, add_member, add_organization, deliver, run_sql, sign_in
from tests.support.mfa import USED_IN_SESSIONS
from tests.support.platform import Platform
from tests.support.refusals import BAD, refused


async def mfa_log(pool: Pool, user: UUID) -> list[tuple[Any, ...]]:
    return await run_sql(pool, "select event_type, success, actor_id, reason from mfa_events where user_id = %s order by created_at", user)


async def test_removing_a_second_factor_ends_sessions_and_deletes_its_data(
    platform: Platform, ports: Ports, pool: Pool, sent: FakeMailTransport
) -> None:
    user, other_user = await with_mfa(ports, pool), await with_mfa(ports, pool, "eve@example.com")
    token, other_token = (await sign_in(ports, user)).access_token, (await sign_in(ports, other_user)).access_token
    answer = await remove_mfa(platform, user.id, {"reason": "  The phone was lost. "})
    assert (answer.status, answer.json.keys(), answer.json["success"]) == (200, {"success", "message"}, True)
    assert [(await platform.api.get("/api/user", token=each)).status for each in (token, other_token, platform.token)] == [401, 200, 200]
    assert (await mfa_status(platform, user.id)).json["mfa_enabled"] is False
    assert (await mfa_status(platform, other_user.id)).json["mfa_enabled"] is True
    assert await run_sql(pool, "select user_id from mfa") == [(other_user.id,)]
    assert {id_ for (id_,) in await run_sql(pool, "select user_id from backup_codes")} == {other_user.id}
    assert await mfa_log(pool, user.id) == [("mfa_force_disabled_by_admin", True, platform.account.id, "The phone was lost.")]
    await deliver(ports)
    [email] = sent.emails
    assert email.to == "ada@example.com"
    assert "phone" not in email.text


async def test_removing_a_second_factor_ends_device_trust_and_pending_sign_ins(platform: Platform, ports: Ports, pool: Pool) -> None:
    user, other_user = await with_mfa(ports, pool), await with_mfa(ports, pool, "eve@example.com")
    for account in (user, other_user):
        await run_sql(
            pool,
            """
            with waiting as (
                insert into sign_in_flows (id, target, request, wants_fresh, keeps_trust, user_id, proofs, proofs_expire_at, begun_at,
                                           expires_at)
                values (%s, 'api', '', false, true, %s, '[]', 'infinity', now(), 'infinity'))
            insert into devices (id, user_id, name, device_type, browser, os, last_used_at, risk_score, risk_factors, trust_hash,
                                 trust_expires_at, created_at, updated_at)
            values (%s, %s, 'A phone', 'mobile', 'A browser', 'A system', now(), 0, '{}', %s, 'infinity', now(), now())""",
            uuid4(),
            account.id,
            uuid4(),
            account.id,
            account.id.bytes,
        )
    assert (await remove_mfa(platform, user.id, {"reason": "x"})).status == 200
    assert await run_sql(pool, "select user_id from devices where trust_hash is not null") == [(other_user.id,)]
    assert await run_sql(pool, "select user_id from sign_in_flows") == [(other_user.id,)]


async def test_organizations_are_notified_and_only_the_platform_log_has_the_reason(platform: Platform, ports: Ports, pool: Pool) -> None:
    user = await with_mfa(ports, pool)
    confirmed, unconfirmed = await add_organization(pool, "acme"), await add_organization(pool, "twin")
    await add_member(pool, confirmed, user.id, confirmed=True)
    await add_member(pool, unconfirmed, user.id)
    assert (await remove_mfa(platform, user.id, {"reason": "lost"})).status == 200
    columns = "action, org_id, target_type, target_id, actor_id, details"
    disabled = ("security.mfa.disabled", confirmed, "user", str(user.id), platform.account.id, {"forced": True, "factor": "totp"})
    reason = ("security.mfa.disabled", None, "user", str(user.id), platform.account.id, {"reason": "lost"})
    assert await run_sql(pool, f"select {columns} from audit_log order by created_at") == [disabled, reason]  # noqa: S608
    events = await run_sql(pool, "select name, org_id, data from events where org_id is not null order by created_at")
    assert events == [(name, confirmed, {"forced": True, "factor": "totp"}) for name in ("user.mfa.disabled", "security.mfa.disabled")]


async def test_the_reason_is_read_from_the_body_or_else_from_the_query(platform: Platform, ports: Ports, pool: Pool) -> None:
    cases: list[tuple[Any, str, str]] = [
        ({"reason": "body"}, "", "body"),
        ({"reason": "body"}, "?reason=query", "body"),
        (None, "?reason=qu%C3%A9ry", "quéry"),
        ({}, "?reason=query", "query"),
        ({"reason": None}, "?reason=query", "query"),
        ({"reason": "ö" * 500}, "", "ö" * 500),
    ]
    for number, (body, query, reason) in enumerate(cases):
        user = await with_mfa(ports, pool, f"p{number}@example.com")
        assert (await remove_mfa(platform, user.id, body, query)).status == 200
        assert (await mfa_log(pool, user.id))[0][3] == reason


INVALID_REASONS: list[tuple[Any, str]] = [
    (None, ""),
    ({}, ""),
    ({"reason": None}, ""),
    ({"reason": ""}, ""),
    ({"reason": "  "}, ""),
    ({"reason": "x" * 501}, ""),
    ({"reason": "a\nb"}, ""),
    ({"reason": "a\x00b"}, ""),
    ({"reason": 5}, ""),
    ({"reason": ""}, "?reason=query"),
    (None, "?reason="),
    (None, "?reason=a%0Ab"),
    (None, f"?reason={'x' * 501}"),
]


async def test_a_missing_or_invalid_reason_is_refused(platform: Platform, ports: Ports, pool: Pool) -> None:
    user = await with_mfa(ports, pool)
    for body, query in INVALID_REASONS:
        answer = await remove_mfa(platform, user.id, body, query)
        assert refused(answer) == BAD, (body, query)
        assert "reason" in answer.json["error"], (body, query)
    assert (await mfa_status(platform, user.id)).json["mfa_enabled"] is True


async def test_platform_owners_cannot_remove_their_own_second_factor(platform: Platform, pool: Pool) -> None:
    await run_sql(pool, "update users set mfa_enabled_at = now()")
    await run_sql(pool, USED_IN_SESSIONS)
    assert refused(await remove_mfa(platform, platform.account.id, {"reason": "x"})) == BAD
    assert await run_sql(pool, "select mfa_enabled_at is null from users") == [(False,)]


async def test_a_demoted_platform_owner_does_not_learn_which_users_exist(ports: Ports) -> None:
    user = await add_account(ports, "ada@example.com", None)
    demoted = await add_account(ports, "demoted@example.com", None)
    caller = Person(user_id=demoted.id, email=demoted.email, session_id=uuid4(), is_platform_owner=True)
    for user_id in (user.id, UNKNOWN_ID):
        with pytest.raises(NotAPlatformOwner):
            await platform.remove_mfa(ports, caller, user_id, "x")


async def test_without_a_second_factor_only_a_pending_secret_is_deleted(
    platform: Platform, ports: Ports, pool: Pool, sent: FakeMailTransport
) -> None:
    user = await add_account(ports, "ada@example.com", None)
    token = (await sign_in(ports, user)).access_token
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.mfa.save_pending_secret(user.id, ports.codes.new_secret(), ports.clock.now())
    for _ in range(2):
        answer = await remove_mfa(platform, user.id, {"reason": "x"})
        assert (answer.status, answer.json["success"]) == (200, True)
    assert await run_sql(pool, "select 1 from mfa union all select 1 from mfa_events union all select 1 from audit_log") == []
    assert (await platform.api.get("/api/user", token=token)).status == 200
    await deliver(ports)
    assert sent.emails == []


async def test_a_second_removal_records_nothing(platform: Platform, ports: Ports, pool: Pool) -> None:
    user = await with_mfa(ports, pool)
    for _ in range(2):
        assert (await remove_mfa(platform, user.id, {"reason": "x"})).status == 200
    assert len(await mfa_log(pool, user.id)) == 1
    assert await run_sql(pool, "select count(*) from mails") == [(1,)]
