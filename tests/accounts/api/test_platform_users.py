"""People in the hands of platform owners (organizations.md section 4.6; decisions, points 241 to 244; security.md I-1 and M-7)."""

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
SOMEWHERE = UUID(int=7)
NOW = FakeClock().now()
ROUTES = [
    ("GET", SEARCH, None),
    ("GET", f"/api/platform/users/{SOMEWHERE}/mfa/status", None),
    ("DELETE", f"/api/platform/users/{SOMEWHERE}/mfa", {"reason": "lost telephone"}),
    ("GET", "/api/platform/mfa/metrics", None),
    ("GET", "/api/platform/mfa/suspicious", None),
    ("POST", OWNERS, {"user_id": str(SOMEWHERE)}),
    ("DELETE", f"{OWNERS}/{SOMEWHERE}", None),
]


async def get(platform: Platform, path: str) -> Any:
    answer = await platform.api.get(path, token=platform.token)
    assert answer.status == 200, answer.text
    return answer.json


# Who may


@pytest.mark.parametrize(("method", "path", "body"), ROUTES)
async def test_only_platform_owners_may_and_nobody_in_the_name_of_another(
    platform: Platform, ports: Ports, method: str, path: str, body: Any
) -> None:
    ada = await add_account(ports, "ada@example.com", None)
    assert refused(await platform.api.call(method, path, body)) == UNAUTHORIZED
    for token in ((await sign_in(ports, ada)).access_token, await impersonate(ports, platform.account, ada)):
        assert refused(await platform.api.call(method, path, body, token=token)) == FORBIDDEN
        assert refused(await platform.api.call(method, path, raw=b"{", token=token)) == FORBIDDEN, "before the body is looked at"


# The search


async def search(platform: Platform, query: str = "") -> list[str]:
    return [user["email"].partition("@")[0] for user in (await get(platform, f"{SEARCH}{query}"))["users"]]


async def test_a_person_is_found_with_every_field(platform: Platform, ports: Ports, pool: Pool, clock: FakeClock) -> None:
    clock.advance(timedelta(seconds=1))
    ada = await add_account(ports, "ada@example.com", None, mfa_enabled_at=clock.now())
    org = await add_organization(pool, "acme")
    await add_member(pool, org, ada.id, "admin")
    found = await get(platform, SEARCH)
    assert found == {
        "users": [
            {
                "id": str(ada.id),
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


async def test_people_are_looked_for_by_part_of_the_address_and_by_id(platform: Platform, ports: Ports) -> None:
    ada = await add_account(ports, "ada@example.com", None)
    await add_account(ports, "eve_x@xn--bcher-kva.example", None)
    assert await search(platform, "?email=ADA") == ["ada"]
    assert await search(platform, "?email=%20ada@EXAMPLE.com%20") == ["ada"]
    assert await search(platform, "?email=@b%C3%BCcher.example") == ["eve_x"]
    assert await search(platform, "?email=_") == ["eve_x"]
    assert await search(platform, "?email=%25") == []
    assert await search(platform, f"?user_id={ada.id}") == await search(platform, f"?user_id={ada.id}&email=ada") == ["ada"]
    assert await search(platform, f"?user_id={ada.id}&email=eve") == []
    for nobody in (str(SOMEWHERE), "x", "", str(ada.id).upper(), f"{{{ada.id}}}"):
        assert await search(platform, f"?user_id={nobody}") == []
    assert len(await search(platform, "?email=")) == 3
    assert len(await search(platform, "?unknown=x")) == 3


async def test_twenty_people_are_shown_unless_more_are_asked_for_and_never_more_than_a_hundred(platform: Platform, pool: Pool) -> None:
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


@pytest.mark.parametrize(
    "query", ["?limit=x", "?limit=1.5", "?limit=", "?email=a%00b", "?email=%ff", "?user_id=a%0ab", f"?email={'x' * 2049}"]
)
async def test_a_search_that_makes_no_sense_is_refused(platform: Platform, query: str) -> None:
    assert refused(await platform.api.get(f"{SEARCH}{query}", token=platform.token)) == BAD


# The second factor of somebody


async def with_mfa(ports: Ports, pool: Pool, email: str = "ada@example.com") -> Account:
    """An account with a second factor and three backup codes, one of which was used."""
    account = await add_account(ports, email, None, mfa_enabled_at=ports.clock.now())
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.mfa.save_pending_secret(account.id, ports.codes.new_secret(), ports.clock.now())
        await tx.mfa.replace_codes(account.id, b"salt", [b"one", b"two", b"three"])
    await run_sql(pool, "update backup_codes set used_at = now() where user_id = %s and code_hash = %s", account.id, b"two")
    return account


async def mfa_status(platform: Platform, user: object) -> Answer:
    return await platform.api.get(f"/api/platform/users/{user}/mfa/status", token=platform.token)


async def test_how_a_second_factor_stands_is_shown(platform: Platform, ports: Ports, pool: Pool, clock: FakeClock) -> None:
    ada = await with_mfa(ports, pool)
    enabled_at = rfc3339(clock.now())
    clock.advance(timedelta(minutes=1))
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.mfa.log(ada.id, [MfaEvent.VERIFY_ATTEMPT, MfaEvent.VERIFY_FAILED], SYSTEM, clock.now())
    shown = {
        "user_id": str(ada.id),
        "email": "ada@example.com",
        "mfa_enabled": True,
        "mfa_enabled_at": enabled_at,
        "backup_codes_remaining": 2,
        "last_mfa_challenge": rfc3339(clock.now()),
    }
    assert (await mfa_status(platform, ada.id)).json == shown
    eve = await add_account(ports, "eve@example.com", None)
    nothing = {"mfa_enabled": False, "mfa_enabled_at": None, "backup_codes_remaining": 0, "last_mfa_challenge": None}
    assert (await mfa_status(platform, eve.id)).json == {"user_id": str(eve.id), "email": "eve@example.com", **nothing}


async def test_of_nobody_there_is_no_second_factor(platform: Platform) -> None:
    for nobody in (SOMEWHERE, "x", str(platform.account.id).upper()):
        assert refused(await mfa_status(platform, nobody)) == MISSING
        assert refused(await remove_mfa(platform, nobody, {"reason": "x"})) == MISSING
        assert refused(await remove_mfa(platform, nobody, raw=b"{")) == MISSING, "before the body is looked at"


# Taking it away


async def remove_mfa(platform: Platform, user: object, body: Any = None, query: str = "", *, raw: bytes | None = None) -> Answer:
    return await platform.api.call("DELETE", f"/api/platform/users/{user}/mfa{query}", body, raw=raw, token=platform.token)


async def mfa_log(pool: Pool, user: UUID) -> list[tuple[Any, ...]]:
    return await run_sql(pool, "select event_type, success, actor_id, reason from mfa_events where user_id = %s order by created_at", user)


async def test_a_second_factor_is_taken_away_with_all_that_hangs_on_it(
    platform: Platform, ports: Ports, pool: Pool, sent: FakeMailTransport
) -> None:
    ada, eve = await with_mfa(ports, pool), await with_mfa(ports, pool, "eve@example.com")
    mine, hers = (await sign_in(ports, ada)).access_token, (await sign_in(ports, eve)).access_token
    answer = await remove_mfa(platform, ada.id, {"reason": "  The telephone was lost. "})
    assert (answer.status, answer.json.keys(), answer.json["success"]) == (200, {"success", "message"}, True)
    assert [(await platform.api.get("/api/user", token=token)).status for token in (mine, hers, platform.token)] == [401, 200, 200]
    assert (await mfa_status(platform, ada.id)).json["mfa_enabled"] is False
    assert (await mfa_status(platform, eve.id)).json["mfa_enabled"] is True
    assert await run_sql(pool, "select user_id from mfa") == [(eve.id,)]
    assert {user for (user,) in await run_sql(pool, "select user_id from backup_codes")} == {eve.id}
    assert await mfa_log(pool, ada.id) == [("mfa_force_disabled_by_admin", True, platform.account.id, "The telephone was lost.")]
    await deliver(ports)
    [letter] = sent.letters
    assert letter.to == "ada@example.com"
    assert "telephone" not in letter.text


async def test_with_the_second_factor_trusted_devices_and_half_a_sign_in_go(platform: Platform, ports: Ports, pool: Pool) -> None:
    ada, eve = await with_mfa(ports, pool), await with_mfa(ports, pool, "eve@example.com")
    for account in (ada, eve):
        await run_sql(
            pool,
            """
            with waiting as (
                insert into pre_auths (id, user_id, provider, created_at, expires_at) values (%s, %s, 'password', now(), 'infinity'))
            insert into devices (id, user_id, name, device_type, browser, os, last_used_at, risk_score, risk_factors, trust_hash,
                                 trust_expires_at, created_at, updated_at)
            values (%s, %s, 'A telephone', 'mobile', 'A browser', 'A system', now(), 0, '{}', %s, 'infinity', now(), now())""",
            uuid4(),
            account.id,
            uuid4(),
            account.id,
            account.id.bytes,
        )
    assert (await remove_mfa(platform, ada.id, {"reason": "x"})).status == 200
    assert await run_sql(pool, "select user_id from devices where trust_hash is not null") == [(eve.id,)]
    assert await run_sql(pool, "select user_id from pre_auths") == [(eve.id,)]


async def test_organizations_are_told_that_it_was_taken_away_and_the_platform_alone_why(
    platform: Platform, ports: Ports, pool: Pool
) -> None:
    ada = await with_mfa(ports, pool)
    confirmed, added = await add_organization(pool, "acme"), await add_organization(pool, "twin")
    await add_member(pool, confirmed, ada.id, confirmed=True)
    await add_member(pool, added, ada.id)
    assert (await remove_mfa(platform, ada.id, {"reason": "lost"})).status == 200
    columns = "action, org_id, target_type, target_id, actor_id, details"
    told = ("security.mfa.disabled", confirmed, "user", str(ada.id), platform.account.id, {"forced": True})
    why = ("security.mfa.disabled", None, "user", str(ada.id), platform.account.id, {"reason": "lost"})
    assert await run_sql(pool, f"select {columns} from audit_log order by created_at") == [told, why]  # noqa: S608
    events = await run_sql(pool, "select name, org_id, data from events where org_id is not null order by created_at")
    assert events == [(name, confirmed, {"forced": True}) for name in ("user.mfa.disabled", "security.mfa.disabled")]


async def test_the_reason_comes_from_the_body_or_else_from_the_query(platform: Platform, ports: Ports, pool: Pool) -> None:
    sayings: list[tuple[Any, str, str]] = [
        ({"reason": "body"}, "", "body"),
        ({"reason": "body"}, "?reason=query", "body"),
        (None, "?reason=qu%C3%A9ry", "quéry"),
        ({}, "?reason=query", "query"),
        ({"reason": None}, "?reason=query", "query"),
        ({"reason": "ö" * 500}, "", "ö" * 500),
    ]
    for number, (body, query, reason) in enumerate(sayings):
        ada = await with_mfa(ports, pool, f"p{number}@example.com")
        assert (await remove_mfa(platform, ada.id, body, query)).status == 200
        assert (await mfa_log(pool, ada.id))[0][3] == reason


@pytest.mark.parametrize(
    ("body", "query"),
    [
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
    ],
)
async def test_without_a_good_reason_nothing_happens(platform: Platform, ports: Ports, pool: Pool, body: Any, query: str) -> None:
    ada = await with_mfa(ports, pool)
    answer = await remove_mfa(platform, ada.id, body, query)
    assert refused(answer) == BAD
    assert "reason" in answer.json["error"]
    assert (await mfa_status(platform, ada.id)).json["mfa_enabled"] is True


async def test_nobody_takes_away_their_own_second_factor_here(platform: Platform, pool: Pool) -> None:
    await run_sql(pool, "update users set mfa_enabled_at = now()")
    assert refused(await remove_mfa(platform, platform.account.id, {"reason": "x"})) == BAD
    assert await run_sql(pool, "select mfa_enabled_at is null from users") == [(False,)]


async def test_who_is_a_platform_owner_no_more_does_not_learn_who_exists(ports: Ports) -> None:
    ada = await add_account(ports, "ada@example.com", None)
    demoted = await add_account(ports, "demoted@example.com", None)
    caller = Person(user_id=demoted.id, email=demoted.email, session_id=uuid4(), is_platform_owner=True)
    for user_id in (ada.id, SOMEWHERE):
        with pytest.raises(NotAPlatformOwner):
            await platform_users.remove_mfa(ports, caller, user_id, "x")


async def test_where_there_is_no_second_factor_only_a_pending_secret_goes(
    platform: Platform, ports: Ports, pool: Pool, sent: FakeMailTransport
) -> None:
    ada = await add_account(ports, "ada@example.com", None)
    token = (await sign_in(ports, ada)).access_token
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.mfa.save_pending_secret(ada.id, ports.codes.new_secret(), ports.clock.now())
    for _ in range(2):
        answer = await remove_mfa(platform, ada.id, {"reason": "x"})
        assert (answer.status, answer.json["success"]) == (200, True)
    assert await run_sql(pool, "select 1 from mfa union all select 1 from mfa_events union all select 1 from audit_log") == []
    assert (await platform.api.get("/api/user", token=token)).status == 200
    await deliver(ports)
    assert sent.letters == []


async def test_taken_away_twice_it_is_told_once(platform: Platform, ports: Ports, pool: Pool) -> None:
    ada = await with_mfa(ports, pool)
    for _ in range(2):
        assert (await remove_mfa(platform, ada.id, {"reason": "x"})).status == 200
    assert len(await mfa_log(pool, ada.id)) == 1
    assert await run_sql(pool, "select count(*) from mails") == [(1,)]


# Figures and alerts


async def test_figures_of_the_second_factor(platform: Platform, ports: Ports, pool: Pool, clock: FakeClock) -> None:
    assert await get(platform, "/api/platform/mfa/metrics") == {
        "total_users": 1,
        "mfa_enabled_users": 0,
        "mfa_adoption_rate": 0.0,
        "backup_codes_used_7d": 0,
        "mfa_failures_7d": 0,
    }
    ada = await with_mfa(ports, pool)
    await add_account(ports, "eve@example.com", None)
    await add_account(ports, "gone@example.com", None, mfa_enabled_at=clock.now(), deactivated_at=clock.now())
    for age in (timedelta(days=7, seconds=1), timedelta(days=6), timedelta()):
        async with ports.storage.transaction(by=SYSTEM) as tx:
            await tx.mfa.log(ada.id, [MfaEvent.VERIFY_ATTEMPT, MfaEvent.VERIFY_FAILED], SYSTEM, clock.now() - age)
            await tx.mfa.log(ada.id, [MfaEvent.BACKUP_CODE_USED], SYSTEM, clock.now() - age)
    assert await get(platform, "/api/platform/mfa/metrics") == {
        "total_users": 3,
        "mfa_enabled_users": 1,
        "mfa_adoption_rate": 33.33,
        "backup_codes_used_7d": 2,
        "mfa_failures_7d": 2,
    }


async def test_what_is_suspicious_is_shown_the_newest_first(platform: Platform, ports: Ports, pool: Pool, clock: FakeClock) -> None:
    assert await get(platform, "/api/platform/mfa/suspicious") == {"alerts": []}
    start = clock.now()
    ada, eve, bob = [await add_account(ports, f"{name}@example.com", None) for name in ("ada", "eve", "bob")]
    async with ports.storage.transaction(by=SYSTEM) as tx:
        for seconds in range(5):
            at = start + timedelta(seconds=seconds)
            await tx.mfa.log(ada.id, [MfaEvent.VERIFY_ATTEMPT, MfaEvent.VERIFY_FAILED], SYSTEM, at)
        for seconds in range(3):
            await tx.mfa.log(eve.id, [MfaEvent.BACKUP_CODE_USED], SYSTEM, start + timedelta(minutes=1, seconds=seconds))
        await tx.mfa.log(bob.id, [MfaEvent.DISABLED], SYSTEM, start + timedelta(minutes=9))
    insert = "insert into login_events (id, user_id, provider, success, address, created_at) values (%s, %s, 'password', true, '::1', %s)"
    await run_sql(pool, insert, uuid4(), bob.id, start)

    def alert(account: Account, kind: str, at: timedelta, **details: Any) -> dict[str, Any]:
        shown = {"user_id": str(account.id), "email": account.email, "alert_type": kind, "details": details}
        return {**shown, "detected_at": rfc3339(start + at)}

    microsecond = timedelta(microseconds=1)  # by which the failure comes after the attempt
    expected = [
        alert(bob, "disabled_after_login", timedelta(minutes=9), login_at=rfc3339(start), ip_address="::1"),
        alert(eve, "backup_code_burst", timedelta(minutes=1, seconds=2), count=3, first_at=rfc3339(start + timedelta(minutes=1))),
        alert(ada, "repeated_failures", timedelta(seconds=4) + microsecond, count=5, first_at=rfc3339(start + microsecond)),
    ]
    assert await get(platform, "/api/platform/mfa/suspicious") == {"alerts": expected}
    for hours, minutes, left in ((24, 1, ["bob@example.com", "eve@example.com"]), (24, 10, [])):
        clock.advance(start + timedelta(hours=hours, minutes=minutes) - clock.now())
        later = replace(platform, token=(await sign_in(ports, platform.account)).access_token)
        assert [one["email"] for one in (await get(later, "/api/platform/mfa/suspicious"))["alerts"]] == left


# Who is a platform owner


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


async def test_a_promoted_person_governs_and_a_demoted_one_does_not_any_more(platform: Platform, ports: Ports, pool: Pool) -> None:
    ada = await add_account(ports, "ada@example.com", None)
    await add_member(pool, await add_organization(pool, "acme"), ada.id, confirmed=True)
    token = (await sign_in(ports, ada)).access_token
    for answer, status in ((await promote(platform, ada.id), 200), (await demote(platform, ada.id), 403)):
        assert (answer.status, answer.json.keys(), answer.json["user_id"]) == (200, {"message", "user_id"}, str(ada.id))
        if status == 403:
            assert refused(await platform.api.get(SEARCH, token=token)) == FORBIDDEN
    assert await owners(pool) == {platform.account.id}
    about_ada = ("user", str(ada.id), platform.account.id)
    assert await platform_log(pool) == [("platform.owner.promoted", None, *about_ada), ("platform.owner.demoted", None, *about_ada)]


async def test_rights_are_those_of_the_moment(platform: Platform, ports: Ports) -> None:
    ada = await add_account(ports, "ada@example.com", None)
    token = (await sign_in(ports, ada)).access_token
    statuses = [(await platform.api.get(SEARCH, token=token)).status]
    for act in (promote, demote, promote):
        assert (await act(platform, ada.id)).status == 200
        statuses.append((await platform.api.get(SEARCH, token=token)).status)
    assert statuses == [403, 200, 403, 200]


async def test_promoted_twice_it_is_recorded_once(platform: Platform, ports: Ports, pool: Pool) -> None:
    ada = await add_account(ports, "ada@example.com", None)
    answers = [await promote(platform, ada.id) for _ in range(2)]
    assert [(answer.status, answer.json) for answer in answers] == [(200, answers[0].json)] * 2
    assert len(await platform_log(pool)) == 1
    assert (await promote(platform, platform.account.id)).status == 200, "oneself, too"
    assert len(await platform_log(pool)) == 1


@pytest.mark.parametrize(
    ("state", "why"),
    [
        ({"verified": False}, "has not proved its email address"),
        ({"deactivated_at": NOW}, "deactivated or anonymized"),
        ({"anonymized_at": NOW}, "deactivated or anonymized"),
        ({"deactivated_at": NOW, "is_platform_owner": True}, "deactivated or anonymized"),
    ],
)
async def test_who_cannot_sign_in_becomes_no_platform_owner(
    platform: Platform, ports: Ports, pool: Pool, state: dict[str, Any], why: str
) -> None:
    ada = await add_account(ports, "ada@example.com", None, **state)
    before = await owners(pool)
    answer = await promote(platform, ada.id)
    assert refused(answer) == BAD
    assert why in answer.json["error"]
    assert (await owners(pool), await platform_log(pool)) == (before, [])


async def test_nobody_is_promoted_who_does_not_exist(platform: Platform, pool: Pool) -> None:
    assert refused(await promote(platform, SOMEWHERE)) == MISSING
    for malformed in ("x", "", str(platform.account.id).upper()):
        assert refused(await promote(platform, malformed)) == BAD
    for body in ({}, {"user_id": None}, {"user_id": 5}):
        assert refused(await platform.api.post(OWNERS, body, token=platform.token)) == BAD
    assert await owners(pool) == {platform.account.id}


async def test_only_other_owners_are_demoted_and_the_last_one_stays(platform: Platform, ports: Ports, pool: Pool) -> None:
    ada = await add_account(ports, "ada@example.com", None)
    for nobody in (ada.id, SOMEWHERE, "x"):
        assert refused(await demote(platform, nobody)) == MISSING
    assert refused(await demote(platform, platform.account.id)) == BAD
    other = await add_platform_owner(ports, "other@platform.example")
    assert refused(await demote(platform, platform.account.id)) == BAD, "however many there are"
    assert (await demote(platform, other.id)).status == 200
    assert refused(await demote(platform, other.id)) == MISSING
    assert await owners(pool) == {platform.account.id}


async def test_an_owner_who_cannot_sign_in_can_be_demoted(platform: Platform, ports: Ports, pool: Pool) -> None:
    gone = await add_account(ports, "gone@example.com", None, is_platform_owner=True, deactivated_at=ports.clock.now())
    assert (await demote(platform, gone.id)).status == 200
    assert await owners(pool) == {platform.account.id}


async def test_who_acts_as_somebody_does_so_no_more_once_that_one_is_promoted(platform: Platform, ports: Ports, api: Api) -> None:
    ada = await add_account(ports, "ada@example.com", None)
    own, acting = (await sign_in(ports, ada)).access_token, await impersonate(ports, platform.account, ada)
    assert [(await api.get("/api/user", token=token)).status for token in (own, acting)] == [200, 200]
    assert (await promote(platform, ada.id)).status == 200
    assert [(await api.get("/api/user", token=token)).status for token in (own, acting)] == [200, 401]


async def test_who_is_demoted_acts_as_nobody_any_more(platform: Platform, ports: Ports, api: Api) -> None:
    other, ada = await add_platform_owner(ports, "other@platform.example"), await add_account(ports, "ada@example.com", None)
    own, acting = (await sign_in(ports, other)).access_token, await impersonate(ports, other, ada)
    assert (await demote(platform, other.id)).status == 200
    assert [(await api.get("/api/user", token=token)).status for token in (own, acting)] == [200, 401]
