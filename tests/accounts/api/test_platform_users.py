"""Platform owners search for users, and metrics for second factors (decision 241; security I-1)."""

from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.accounts.model.mfa import MfaEvent
from core.kernel.causes import SYSTEM
from core.kernel.values import rfc3339
from ports import Ports
from tests.accounts.api.platform_paths import OWNERS, SEARCH, UNKNOWN_ID, mfa_status, remove_mfa, with_mfa
from tests.fakes.outside import FakeClock
from tests.support.browser import FakeBrowser
from tests.support.builders import PASSWORD, add_account, add_member, add_organization, impersonate, run_sql, sign_in
from tests.support.platform import Platform
from tests.support.refusals import BAD, FORBIDDEN, MISSING, UNAUTHORIZED, refused

ROUTES = [
    ("GET", SEARCH, None),
    ("GET", f"/api/platform/users/{UNKNOWN_ID}/mfa/status", None),
    ("DELETE", f"/api/platform/users/{UNKNOWN_ID}/mfa", {"reason": "lost phone"}),
    ("POST", f"/api/platform/users/{UNKNOWN_ID}/deactivate", {"reason": "stolen"}),
    ("POST", f"/api/platform/users/{UNKNOWN_ID}/reactivate", {"reason": "returned"}),
    ("GET", f"/api/platform/users/{UNKNOWN_ID}", None),
    ("POST", f"/api/platform/users/{UNKNOWN_ID}/end-sessions", {"reason": "lost laptop"}),
    ("POST", f"/api/platform/users/{UNKNOWN_ID}/password-reset", {"reason": "lost password"}),
    ("GET", OWNERS, None),
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


async def test_parts_of_the_search_follow_each_other(platform: Platform, ports: Ports, pool: Pool) -> None:
    for number in range(5):
        await add_account(ports, f"u{number}@example.com", None)
    await run_sql(pool, "update users set created_at = '2026-01-01Z'")  # the ids decide then
    for query, part_of_address in {"limit=2": "", "limit=2&email=u": "u", "limit=100&email=@example.com": "@example.com"}.items():
        seen: list[str] = []
        after = ""
        while True:
            part = await get(platform, f"{SEARCH}?{query}{after}")
            seen += [user["id"] for user in part["users"]]
            if part["next"] is None:
                break
            after = f"&after={part['next']}"
        expected = await run_sql(pool, "select id::text from users where strpos(email, %s) > 0 order by id desc", part_of_address)
        assert seen == [id_ for (id_,) in expected], query
    for unknown in (UNKNOWN_ID, "x", ""):
        assert await get(platform, f"{SEARCH}?after={unknown}") == {"users": [], "next": None}


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
                "protection": "protected",
                "factors": ["app"],
                "created_at": rfc3339(clock.now()),
                "deactivated_at": None,
                "deactivated_by_platform": False,
                "erase_at": None,
                "organizations": [{"id": str(org), "slug": "acme", "name": "Acme", "role": "admin"}],
            },
            {
                "id": str(platform.account.id),
                "email": platform.account.email,
                "is_platform_owner": True,
                "mfa_enabled": False,
                "protection": "protected",
                "factors": [],
                "created_at": rfc3339(platform.account.created_at),
                "deactivated_at": None,
                "deactivated_by_platform": False,
                "erase_at": None,
                "organizations": [],
            },
        ],
        "next": None,
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


async def test_the_status_of_a_second_factor_is_returned(platform: Platform, ports: Ports, pool: Pool, clock: FakeClock) -> None:
    user = await with_mfa(ports, pool)
    enabled_at = rfc3339(clock.now())
    clock.advance(timedelta(minutes=1))
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.mfa.log(user.id, [MfaEvent.VERIFY_ATTEMPT, MfaEvent.VERIFY_FAILED], SYSTEM, clock.now())
    status = {
        "user_id": str(user.id),
        "email": "ada@example.com",
        "mfa_enabled": True,
        "mfa_enabled_at": enabled_at,
        "methods": ["totp", "backup_code"],
        "backup_codes_remaining": 2,
        "last_mfa_challenge": rfc3339(clock.now()),
    }
    assert (await mfa_status(platform, user.id)).json == status
    other_user = await add_account(ports, "eve@example.com", None)
    empty_status: dict[str, object] = {
        "mfa_enabled": False,
        "mfa_enabled_at": None,
        "methods": [],
        "backup_codes_remaining": 0,
        "last_mfa_challenge": None,
    }
    assert (await mfa_status(platform, other_user.id)).json == {"user_id": str(other_user.id), "email": "eve@example.com", **empty_status}


async def test_an_unknown_user_is_not_found(platform: Platform) -> None:
    for unknown_id in (UNKNOWN_ID, "x", str(platform.account.id).upper()):
        assert refused(await mfa_status(platform, unknown_id)) == MISSING
        assert refused(await remove_mfa(platform, unknown_id, {"reason": "x"})) == MISSING
        assert refused(await remove_mfa(platform, unknown_id, raw=b"{")) == MISSING, "the user is checked before the body"


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


async def test_alerts_are_listed_the_newest_first(app: QuartTrio, platform: Platform, ports: Ports, pool: Pool, clock: FakeClock) -> None:
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
        expected_alert = {"user_id": str(account.id), "email": account.email, "alert_type": kind, "details": details}
        return {**expected_alert, "detected_at": rfc3339(start + at)}

    microsecond = timedelta(microseconds=1)  # the failure is logged a microsecond after the attempt
    expected = [
        alert(bob, "disabled_after_login", timedelta(minutes=9), login_at=rfc3339(start), ip_address="::1"),
        alert(other_user, "backup_code_burst", timedelta(minutes=1, seconds=2), count=3, first_at=rfc3339(start + timedelta(minutes=1))),
        alert(user, "repeated_failures", timedelta(seconds=4) + microsecond, count=5, first_at=rfc3339(start + microsecond)),
    ]
    assert await get(platform, "/api/platform/mfa/suspicious") == {"alerts": expected}
    browser, owner = FakeBrowser(app), await add_account(ports, "grace@example.com", is_platform_owner=True)
    await browser.sign_in(owner.email, PASSWORD)
    page = await browser.open("/app/platform/second-factors")
    assert page.status == 200
    assert all(text in page.text for text in ("(3)", "(5)", ", from ::1"))
    for hours, minutes, emails in ((24, 1, ["bob@example.com", "eve@example.com"]), (24, 10, [])):
        clock.advance(start + timedelta(hours=hours, minutes=minutes) - clock.now())
        later = replace(platform, token=(await sign_in(ports, platform.account)).access_token)
        assert [one["email"] for one in (await get(later, "/api/platform/mfa/suspicious"))["alerts"]] == emails
