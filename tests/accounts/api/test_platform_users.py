"""What platform owners do with users (decisions 241, 242, 243, 244; security I-1, M-7).

The module is longer than 400 lines, because its tests share fixtures and helpers.
"""

from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from adapters.postgres.engine.pool import Pool
from core.accounts import platform_users
from core.accounts.accounts_rules import Account
from core.accounts.mfa_rules import MfaEvent
from core.kernel.principals import SYSTEM, NotAPlatformOwner, Person
from core.kernel.values import rfc3339
from ports import Ports
from tests.fakes.outside import FakeClock, FakeMailTransport
from tests.support.builders import (
    Answer,
    Api,
    add_account,
    add_member,
    add_organization,
    add_platform_owner,
    deliver,
    impersonate,
    run_sql,
    sign_in,
)
from tests.support.platform import Platform
from tests.support.refusals import BAD, FORBIDDEN, MISSING, UNAUTHORIZED, refused

SEARCH, OWNERS = "/api/platform/users/search", "/api/platform/owners"
UNKNOWN_ID = UUID(int=7)
NOW = FakeClock().now()
ROUTES = [
    ("GET", SEARCH, None),
    ("GET", f"/api/platform/users/{UNKNOWN_ID}/mfa/status", None),
    ("DELETE", f"/api/platform/users/{UNKNOWN_ID}/mfa", {"reason": "lost phone"}),
    ("GET", "/api/platform/mfa/metrics", None),
    ("GET", "/api/platform/mfa/suspicious", None),
    ("POST", OWNERS, {"user_id": str(UNKNOWN_ID)}),
    ("DELETE", f"{OWNERS}/{UNKNOWN_ID}", None),
]


async def get(platform: Platform, path: str) -> Any:
    answer = await platform.api.get(path, token=platform.token)
    assert answer.status == 200, answer.text
    return answer.json


# Access


async def test_only_platform_owners_are_allowed_and_no_impersonators(platform: Platform, ports: Ports) -> None:
    user = await add_account(ports, "ada@example.com", None)
    tokens = (await sign_in(ports, user)).access_token, await impersonate(ports, platform.account, user)
    for method, path, body in ROUTES:
        assert refused(await platform.api.call(method, path, body)) == UNAUTHORIZED, path
        for token in tokens:
            assert refused(await platform.api.call(method, path, body, token=token)) == FORBIDDEN, path
            # Access is checked before the body.
            assert refused(await platform.api.call(method, path, raw=b"{", token=token)) == FORBIDDEN, path


# The search


async def search(platform: Platform, query: str = "") -> list[str]:
    return [user["email"].partition("@")[0] for user in (await get(platform, f"{SEARCH}{query}"))["users"]]


async def test_search_returns_every_field(platform: Platform, ports: Ports, pool: Pool, clock: FakeClock) -> None:
    clock.advance(timedelta(seconds=1))
    user = await add_account(ports, "ada@example.com", None, mfa_enabled_at=clock.now())
    org = await add_organization(pool, "acme")
    await add_member(pool, org, user.id, "admin")
    result = await get(platform, SEARCH)
    assert result == {
        "users": [
            {
                "id": str(user.id),
                "email": "ada@example.com",
                "is_platform_owner": False,
                "mfa_enabled": True,
                "created_at": rfc3339(clock.now()),
                "organizations": [{"id": str(org), "slug": "acme", "name": "Acme", "role": "admin"}],
            },
            {
                "id": str(platform.account.id),
                "email": platform.account.email,
                "is_platform_owner": True,
                "mfa_enabled": False,
                "created_at": rfc3339(platform.account.created_at),
                "organizations": [],
            },
        ]
    }


async def test_search_by_a_part_of_the_address_and_by_id(platform: Platform, ports: Ports) -> None:
    user = await add_account(ports, "ada@example.com", None)
    await add_account(ports, "eve_x@xn--bcher-kva.example", None)
    assert await search(platform, "?email=ADA") == ["ada"]
    assert await search(platform, "?email=%20ada@EXAMPLE.com%20") == ["ada"]
    assert await search(platform, "?email=@b%C3%BCcher.example") == ["eve_x"]
    assert await search(platform, "?email=_") == ["eve_x"]
    assert await search(platform, "?email=%25") == []
    assert await search(platform, f"?user_id={user.id}") == await search(platform, f"?user_id={user.id}&email=ada") == ["ada"]
    assert await search(platform, f"?user_id={user.id}&email=eve") == []
    for unknown_id in (str(UNKNOWN_ID), "x", "", str(user.id).upper(), f"{{{user.id}}}"):
        assert await search(platform, f"?user_id={unknown_id}") == []
    assert len(await search(platform, "?email=")) == 3
    assert len(await search(platform, "?unknown=x")) == 3


async def test_search_returns_20_users_by_default_and_at_most_100(platform: Platform, pool: Pool) -> None:
    await run_sql(
        pool,
        """
        insert into users (id, email, origin, created_at, updated_at)
        select gen_random_uuid(), 'p' || n || '@example.com', 'platform', now() - n * interval '1 minute', now()
        from generate_series(1, 110) n""",
    )
    assert await search(platform, "?email=example.com") == [f"p{n}" for n in range(1, 21)]
    for limit, count in (("3", 3), ("100", 100), ("101", 100), ("9" * 30, 100), ("0", 1), ("-5", 1)):
        assert await search(platform, f"?email=example.com&limit={limit}") == [f"p{n}" for n in range(1, count + 1)], limit


async def test_an_invalid_search_is_refused(platform: Platform) -> None:
    for query in ("limit=x", "limit=1.5", "limit=", "email=a%00b", "email=%ff", "user_id=a%0ab", f"email={'x' * 2049}"):
        assert refused(await platform.api.get(f"{SEARCH}?{query}", token=platform.token)) == BAD, query


# The status of a second factor


async def with_mfa(ports: Ports, pool: Pool, email: str = "ada@example.com") -> Account:
    """Add an account with a second factor and three backup codes, one of them used."""
    account = await add_account(ports, email, None, mfa_enabled_at=ports.clock.now())
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.mfa.save_pending_secret(account.id, ports.codes.new_secret(), ports.clock.now())
        await tx.mfa.replace_codes(account.id, b"salt", [b"one", b"two", b"three"])
    await run_sql(pool, "update backup_codes set used_at = now() where user_id = %s and code_hash = %s", account.id, b"two")
    return account


async def mfa_status(platform: Platform, user: object) -> Answer:
    return await platform.api.get(f"/api/platform/users/{user}/mfa/status", token=platform.token)


async def test_the_status_of_a_second_factor_is_returned(platform: Platform, ports: Ports, pool: Pool, clock: FakeClock) -> None:
    user = await with_mfa(ports, pool)
    enabled_at = rfc3339(clock.now())
    clock.advance(timedelta(minutes=1))
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.mfa.log(user.id, [MfaEvent.VERIFY_ATTEMPT, MfaEvent.VERIFY_FAILED], SYSTEM, clock.now())
    shown = {
        "user_id": str(user.id),
        "email": "ada@example.com",
        "mfa_enabled": True,
        "mfa_enabled_at": enabled_at,
        "backup_codes_remaining": 2,
        "last_mfa_challenge": rfc3339(clock.now()),
    }
    assert (await mfa_status(platform, user.id)).json == shown
    other_user = await add_account(ports, "eve@example.com", None)
    nothing = {"mfa_enabled": False, "mfa_enabled_at": None, "backup_codes_remaining": 0, "last_mfa_challenge": None}
    assert (await mfa_status(platform, other_user.id)).json == {"user_id": str(other_user.id), "email": "eve@example.com", **nothing}


async def test_an_unknown_user_is_not_found(platform: Platform) -> None:
    for unknown_id in (UNKNOWN_ID, "x", str(platform.account.id).upper()):
        assert refused(await mfa_status(platform, unknown_id)) == MISSING
        assert refused(await remove_mfa(platform, unknown_id, {"reason": "x"})) == MISSING
        assert refused(await remove_mfa(platform, unknown_id, raw=b"{")) == MISSING, "the user is checked before the body"


# Removing a second factor


async def remove_mfa(platform: Platform, user: object, body: Any = None, query: str = "", *, raw: bytes | None = None) -> Answer:
    return await platform.api.call("DELETE", f"/api/platform/users/{user}/mfa{query}", body, raw=raw, token=platform.token)


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
                insert into pre_auths (id, user_id, provider, created_at, expires_at) values (%s, %s, 'password', now(), 'infinity'))
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
    assert await run_sql(pool, "select user_id from pre_auths") == [(other_user.id,)]


async def test_organizations_are_notified_and_only_the_platform_log_has_the_reason(platform: Platform, ports: Ports, pool: Pool) -> None:
    user = await with_mfa(ports, pool)
    confirmed, added = await add_organization(pool, "acme"), await add_organization(pool, "twin")
    await add_member(pool, confirmed, user.id, confirmed=True)
    await add_member(pool, added, user.id)
    assert (await remove_mfa(platform, user.id, {"reason": "lost"})).status == 200
    columns = "action, org_id, target_type, target_id, actor_id, details"
    disabled = ("security.mfa.disabled", confirmed, "user", str(user.id), platform.account.id, {"forced": True})
    reason = ("security.mfa.disabled", None, "user", str(user.id), platform.account.id, {"reason": "lost"})
    assert await run_sql(pool, f"select {columns} from audit_log order by created_at") == [disabled, reason]  # noqa: S608
    events = await run_sql(pool, "select name, org_id, data from events where org_id is not null order by created_at")
    assert events == [(name, confirmed, {"forced": True}) for name in ("user.mfa.disabled", "security.mfa.disabled")]


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
    assert refused(await remove_mfa(platform, platform.account.id, {"reason": "x"})) == BAD
    assert await run_sql(pool, "select mfa_enabled_at is null from users") == [(False,)]


async def test_a_demoted_platform_owner_does_not_learn_which_users_exist(ports: Ports) -> None:
    user = await add_account(ports, "ada@example.com", None)
    demoted = await add_account(ports, "demoted@example.com", None)
    caller = Person(user_id=demoted.id, email=demoted.email, session_id=uuid4(), is_platform_owner=True)
    for user_id in (user.id, UNKNOWN_ID):
        with pytest.raises(NotAPlatformOwner):
            await platform_users.remove_mfa(ports, caller, user_id, "x")


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


# Metrics and alerts


async def test_metrics_of_second_factors(platform: Platform, ports: Ports, pool: Pool, clock: FakeClock) -> None:
    assert await get(platform, "/api/platform/mfa/metrics") == {
        "total_users": 1,
        "mfa_enabled_users": 0,
        "mfa_adoption_rate": 0.0,
        "backup_codes_used_7d": 0,
        "mfa_failures_7d": 0,
    }
    user = await with_mfa(ports, pool)
    await add_account(ports, "eve@example.com", None)
    await add_account(ports, "gone@example.com", None, mfa_enabled_at=clock.now(), deactivated_at=clock.now())
    for age in (timedelta(days=7, seconds=1), timedelta(days=6), timedelta()):
        async with ports.storage.transaction(by=SYSTEM) as tx:
            await tx.mfa.log(user.id, [MfaEvent.VERIFY_ATTEMPT, MfaEvent.VERIFY_FAILED], SYSTEM, clock.now() - age)
            await tx.mfa.log(user.id, [MfaEvent.BACKUP_CODE_USED], SYSTEM, clock.now() - age)
    assert await get(platform, "/api/platform/mfa/metrics") == {
        "total_users": 3,
        "mfa_enabled_users": 1,
        "mfa_adoption_rate": 33.33,
        "backup_codes_used_7d": 2,
        "mfa_failures_7d": 2,
    }


async def test_alerts_are_listed_the_newest_first(platform: Platform, ports: Ports, pool: Pool, clock: FakeClock) -> None:
    assert await get(platform, "/api/platform/mfa/suspicious") == {"alerts": []}
    start = clock.now()
    user, other_user, bob = [await add_account(ports, f"{name}@example.com", None) for name in ("ada", "eve", "bob")]
    async with ports.storage.transaction(by=SYSTEM) as tx:
        for seconds in range(5):
            at = start + timedelta(seconds=seconds)
            await tx.mfa.log(user.id, [MfaEvent.VERIFY_ATTEMPT, MfaEvent.VERIFY_FAILED], SYSTEM, at)
        for seconds in range(3):
            await tx.mfa.log(other_user.id, [MfaEvent.BACKUP_CODE_USED], SYSTEM, start + timedelta(minutes=1, seconds=seconds))
        await tx.mfa.log(bob.id, [MfaEvent.DISABLED], SYSTEM, start + timedelta(minutes=9))
    insert = "insert into login_events (id, user_id, provider, success, address, created_at) values (%s, %s, 'password', true, '::1', %s)"
    await run_sql(pool, insert, uuid4(), bob.id, start)

    def alert(account: Account, kind: str, at: timedelta, **details: Any) -> dict[str, Any]:
        shown = {"user_id": str(account.id), "email": account.email, "alert_type": kind, "details": details}
        return {**shown, "detected_at": rfc3339(start + at)}

    microsecond = timedelta(microseconds=1)  # the failure is logged one microsecond after the attempt
    expected = [
        alert(bob, "disabled_after_login", timedelta(minutes=9), login_at=rfc3339(start), ip_address="::1"),
        alert(other_user, "backup_code_burst", timedelta(minutes=1, seconds=2), count=3, first_at=rfc3339(start + timedelta(minutes=1))),
        alert(user, "repeated_failures", timedelta(seconds=4) + microsecond, count=5, first_at=rfc3339(start + microsecond)),
    ]
    assert await get(platform, "/api/platform/mfa/suspicious") == {"alerts": expected}
    for hours, minutes, left in ((24, 1, ["bob@example.com", "eve@example.com"]), (24, 10, [])):
        clock.advance(start + timedelta(hours=hours, minutes=minutes) - clock.now())
        later = replace(platform, token=(await sign_in(ports, platform.account)).access_token)
        assert [one["email"] for one in (await get(later, "/api/platform/mfa/suspicious"))["alerts"]] == left


# Platform owners


async def promote(platform: Platform, user: object) -> Answer:
    return await platform.api.post(OWNERS, {"user_id": str(user)}, token=platform.token)


async def demote(platform: Platform, user: object) -> Answer:
    return await platform.api.delete(f"{OWNERS}/{user}", token=platform.token)


async def owners(pool: Pool) -> set[UUID]:
    return {id_ for (id_,) in await run_sql(pool, "select id from users where is_platform_owner")}


async def platform_log(pool: Pool) -> list[tuple[Any, ...]]:
    return await run_sql(
        pool, "select action, org_id, target_type, target_id, actor_id from audit_log order by created_at, xmin::text::bigint, ctid"
    )


async def test_platform_owners_are_promoted_and_demoted(platform: Platform, ports: Ports, pool: Pool) -> None:
    user = await add_account(ports, "ada@example.com", None)
    await add_member(pool, await add_organization(pool, "acme"), user.id, confirmed=True)
    token = (await sign_in(ports, user)).access_token
    for answer, status in ((await promote(platform, user.id), 200), (await demote(platform, user.id), 403)):
        assert (answer.status, answer.json.keys(), answer.json["user_id"]) == (200, {"message", "user_id"}, str(user.id))
        if status == 403:
            assert refused(await platform.api.get(SEARCH, token=token)) == FORBIDDEN
    assert await owners(pool) == {platform.account.id}
    about_ada = ("user", str(user.id), platform.account.id)
    assert await platform_log(pool) == [("platform.owner.promoted", None, *about_ada), ("platform.owner.demoted", None, *about_ada)]


async def test_promotion_and_demotion_take_effect_at_once(platform: Platform, ports: Ports) -> None:
    user = await add_account(ports, "ada@example.com", None)
    token = (await sign_in(ports, user)).access_token
    statuses = [(await platform.api.get(SEARCH, token=token)).status]
    for act in (promote, demote, promote):
        assert (await act(platform, user.id)).status == 200
        statuses.append((await platform.api.get(SEARCH, token=token)).status)
    assert statuses == [403, 200, 403, 200]


async def test_a_second_promotion_records_nothing(platform: Platform, ports: Ports, pool: Pool) -> None:
    user = await add_account(ports, "ada@example.com", None)
    answers = [await promote(platform, user.id) for _ in range(2)]
    assert [(answer.status, answer.json) for answer in answers] == [(200, answers[0].json)] * 2
    assert len(await platform_log(pool)) == 1
    assert (await promote(platform, platform.account.id)).status == 200, "promoting yourself succeeds"
    assert len(await platform_log(pool)) == 1


@pytest.mark.parametrize(
    ("state", "why"),
    [
        ({"verified": False}, "is not verified"),
        ({"deactivated_at": NOW}, "deactivated or anonymized"),
        ({"anonymized_at": NOW}, "deactivated or anonymized"),
        ({"deactivated_at": NOW, "is_platform_owner": True}, "deactivated or anonymized"),
    ],
)
async def test_an_unusable_or_unverified_account_is_not_promoted(
    platform: Platform, ports: Ports, pool: Pool, state: dict[str, Any], why: str
) -> None:
    user = await add_account(ports, "ada@example.com", None, **state)
    before = await owners(pool)
    answer = await promote(platform, user.id)
    assert refused(answer) == BAD
    assert why in answer.json["error"]
    assert (await owners(pool), await platform_log(pool)) == (before, [])


async def test_promoting_an_unknown_user_is_refused(platform: Platform, pool: Pool) -> None:
    assert refused(await promote(platform, UNKNOWN_ID)) == MISSING
    for malformed in ("x", "", str(platform.account.id).upper()):
        assert refused(await promote(platform, malformed)) == BAD
    for body in ({}, {"user_id": None}, {"user_id": 5}):
        assert refused(await platform.api.post(OWNERS, body, token=platform.token)) == BAD
    assert await owners(pool) == {platform.account.id}


async def test_only_other_platform_owners_can_be_demoted(platform: Platform, ports: Ports, pool: Pool) -> None:
    user = await add_account(ports, "ada@example.com", None)
    for unknown_id in (user.id, UNKNOWN_ID, "x"):
        assert refused(await demote(platform, unknown_id)) == MISSING
    assert refused(await demote(platform, platform.account.id)) == BAD
    other = await add_platform_owner(ports, "other@platform.example")
    assert refused(await demote(platform, platform.account.id)) == BAD, "with any number of platform owners"
    assert (await demote(platform, other.id)).status == 200
    assert refused(await demote(platform, other.id)) == MISSING
    assert await owners(pool) == {platform.account.id}


async def test_a_deactivated_platform_owner_can_be_demoted(platform: Platform, ports: Ports, pool: Pool) -> None:
    gone = await add_account(ports, "gone@example.com", None, is_platform_owner=True, deactivated_at=ports.clock.now())
    assert (await demote(platform, gone.id)).status == 200
    assert await owners(pool) == {platform.account.id}


async def test_a_promotion_ends_impersonations_of_the_user(platform: Platform, ports: Ports, api: Api) -> None:
    user = await add_account(ports, "ada@example.com", None)
    own, acting = (await sign_in(ports, user)).access_token, await impersonate(ports, platform.account, user)
    assert [(await api.get("/api/user", token=token)).status for token in (own, acting)] == [200, 200]
    assert (await promote(platform, user.id)).status == 200
    assert [(await api.get("/api/user", token=token)).status for token in (own, acting)] == [200, 401]


async def test_a_demotion_ends_impersonations_by_the_user(platform: Platform, ports: Ports, api: Api) -> None:
    other, user = await add_platform_owner(ports, "other@platform.example"), await add_account(ports, "ada@example.com", None)
    own, acting = (await sign_in(ports, other)).access_token, await impersonate(ports, other, user)
    assert (await demote(platform, other.id)).status == 200
    assert [(await api.get("/api/user", token=token)).status for token in (own, acting)] == [200, 401]
