"""The statements for platform owners: fields, filters and thresholds."""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.accounts.model.platform import (
    BACKUP_CODE_ALERT_THRESHOLD,
    FAILURE_ALERT_THRESHOLD,
    SHORTLY_AFTER_LOGIN,
    FoundUser,
    MfaAlert,
    MfaAlertType,
    MfaMetrics,
    UserMfaStatus,
    UserOrganization,
)
from core.accounts.model.protection import HeldFactor, Protection
from core.kernel.causes import SYSTEM
from core.kernel.roles import ADMIN, MEMBER, OWNER
from core.kernel.values import Email, rfc3339
from tests.support.builders import add_member, add_organization, run_sql
from tests.support.rows import ADA, DAY, EVE, HOUR, MICROSECOND, NOW, SECOND, account, add

# Platform owners


async def test_promotion_and_demotion_affect_one_account(storage: Postgres, pool: Pool) -> None:
    await add(storage, user := account(is_platform_owner=True), eve := account(EVE, is_platform_owner=True))
    async with storage.transaction(by=SYSTEM) as tx:
        await tx.accounts.demote(user.id, NOW)
    rows = "select id, is_platform_owner, updated_at from users order by email"
    assert await run_sql(pool, rows) == [(user.id, False, NOW), (eve.id, True, NOW - DAY)]


@pytest.mark.parametrize(
    ("other", "counts"),
    [
        ({"is_platform_owner": True}, True),
        ({"is_platform_owner": True, "email_verified_at": None}, True),
        ({"is_platform_owner": True, "deactivated_at": NOW}, False),
        ({"is_platform_owner": True, "anonymized_at": NOW}, False),
        ({}, False),
    ],
)
async def test_only_usable_accounts_count_as_other_platform_owners(storage: Postgres, other: dict[str, Any], counts: bool) -> None:
    await add(storage, user := account(is_platform_owner=True), eve := account(EVE, **other))
    async with storage.transaction(by=SYSTEM) as tx:
        assert await tx.accounts.other_platform_owner_exists(user.id) is counts
        assert await tx.accounts.other_platform_owner_exists(eve.id)


# The search


async def search(storage: Postgres, limit: int = 20, **filters: Any) -> list[FoundUser]:
    async with storage.reading() as read:
        return await read.platform_users.search(limit, **filters)


async def names(storage: Postgres, limit: int = 20, **filters: Any) -> list[str]:
    return [one.email.partition("@")[0] for one in await search(storage, limit, **filters)]


async def test_a_search_returns_every_field(storage: Postgres, pool: Pool) -> None:
    await add(storage, user := account(is_platform_owner=True, mfa_enabled_at=NOW), eve := account(EVE, created_at=NOW))
    other_tenant, acme, other = [
        await add_organization(pool, slug, status) for slug, status in (("twin", "suspended"), ("acme", "active"), ("x", "active"))
    ]
    await add_member(pool, other_tenant, user.id, "member")
    await add_member(pool, acme, user.id, "owner", confirmed=True)
    await add_member(pool, other, eve.id, "admin")
    eves_result = FoundUser(
        eve.id, EVE, False, False, Protection.PASSWORD_ALONE, (), NOW, None, False, None, (UserOrganization(other, "x", "X", ADMIN),)
    )
    organizations = (UserOrganization(acme, "acme", "Acme", OWNER), UserOrganization(other_tenant, "twin", "Twin", MEMBER))
    adas_result = FoundUser(user.id, ADA, True, True, Protection.PROTECTED, (HeldFactor.APP,), NOW - DAY, None, False, None, organizations)
    assert await search(storage) == [eves_result, adas_result]
    assert await search(storage, email="ada") == [adas_result]
    assert await search(storage, user_id=user.id) == [adas_result]
    assert await search(storage, user_id=eve.id, email="eve") == [eves_result]


async def test_unusable_accounts_are_found_too(storage: Postgres) -> None:
    await add(
        storage,
        account("a@example.com", deactivated_at=NOW),
        account("b@example.com", anonymized_at=NOW),
        account("c@example.com", email_verified_at=None),
    )
    assert sorted(await names(storage)) == sorted(await names(storage, email="example.com")) == ["a", "b", "c"]
    assert all(not one.organizations for one in await search(storage))


async def test_a_search_says_who_deactivated_an_account(storage: Postgres) -> None:
    await add(storage, user := account(), eve := account(EVE), open_account := account("open@example.com"))
    async with storage.transaction(by=SYSTEM) as tx:
        await tx.accounts.deactivate(user.id, NOW)
        await tx.accounts.deactivate_by_platform(eve.id, NOW + SECOND)
    found = {one.id: (one.deactivated_at, one.deactivated_by_platform) for one in await search(storage)}
    assert found == {user.id: (NOW, False), eve.id: (NOW + SECOND, True), open_account.id: (None, False)}


async def test_the_newest_users_come_first_up_to_the_limit(storage: Postgres) -> None:
    people = [account(f"person-{number}@example.com", created_at=NOW - number * SECOND) for number in (3, 0, 4, 1, 2)]
    await add(storage, *people)
    newest = [f"person-{number}" for number in range(5)]
    assert await names(storage) == await names(storage, email="person") == newest
    assert await names(storage, 2) == await names(storage, 2, email="person") == newest[:2]


async def test_users_created_at_the_same_time_have_an_order(storage: Postgres) -> None:
    people = [account(f"person-{number}@example.com") for number in range(7)]
    await add(storage, *people)
    expected = sorted((person.id for person in people), key=str, reverse=True)
    for part in (None, "person"):
        assert [one.id for one in await search(storage, email=part)] == expected
        assert [one.id for one in await search(storage, 3, email=part)] == expected[:3]


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ("one", ["a-one", "b_one", "c%one"]),
        ("_", ["b_one"]),
        ("%", ["c%one"]),
        ("a%one", []),
        ("\\", []),
        ("'", []),
        ("@example.com", ["a-one", "b_one", "c%one", "d.two"]),
        ("d.two@example.com", ["d.two"]),
        ("d.two@example.comm", []),
    ],
)
async def test_a_search_has_no_wildcards(storage: Postgres, part: str, expected: list[str]) -> None:
    await add(
        storage,
        *(account(f"{name}@example.com", created_at=NOW - n * SECOND) for n, name in enumerate(["a-one", "b_one", "c%one", "d.two"])),
    )
    assert await names(storage, email=part) == expected


async def test_both_criteria_must_be_met(storage: Postgres) -> None:
    await add(storage, user := account(), account(EVE))
    assert await names(storage, user_id=user.id, email="ada") == ["ada"]
    assert await names(storage, user_id=user.id, email="eve") == []
    assert await names(storage, user_id=uuid4()) == []


# A second factor's status


async def log(pool: Pool, user: UUID, event: str, *times: datetime) -> None:
    """Add entries to the second-factor log."""
    for at in times:
        insert = "insert into mfa_events (id, user_id, event_type, success, created_at) values (%s, %s, %s, true, %s)"
        await run_sql(pool, insert, uuid4(), user, event, at)


async def add_backup_codes(pool: Pool, user: UUID, unused: int, used: int) -> None:
    await run_sql(
        pool,
        """
        insert into backup_codes (user_id, code_hash, used_at)
        select %s, decode(lpad(n::text, 64, '0'), 'hex'), case when n > %s then now() end from generate_series(1, %s) n""",
        user,
        unused,
        unused + used,
    )


async def status(storage: Postgres, user: UUID) -> UserMfaStatus | None:
    async with storage.reading() as read:
        return await read.platform_users.mfa_status(user)


async def test_the_status_has_every_field(storage: Postgres, pool: Pool) -> None:
    await add(storage, user := account(mfa_enabled_at=NOW - HOUR), eve := account(EVE))
    await add_backup_codes(pool, user.id, unused=7, used=3)
    await log(pool, user.id, "mfa_verify_attempt", NOW - 3 * SECOND, NOW - SECOND, NOW - 2 * SECOND)
    await log(pool, user.id, "mfa_verify_success", NOW)
    assert await status(storage, user.id) == UserMfaStatus(NOW - HOUR, None, False, 7, user.id, ADA, NOW - SECOND)
    assert await status(storage, eve.id) == UserMfaStatus(None, None, False, 0, eve.id, EVE, None)
    assert await status(storage, uuid4()) is None


# Metrics


async def test_metrics_count_usable_accounts_and_recent_events(storage: Postgres, pool: Pool) -> None:
    people: dict[str, dict[str, Any]] = {
        "ada": {"mfa_enabled_at": NOW},
        "bob": {"mfa_enabled_at": NOW, "email_verified_at": None},
        "eve": {},
        "gone": {"mfa_enabled_at": NOW, "deactivated_at": NOW},
        "anonymized": {"mfa_enabled_at": NOW, "anonymized_at": NOW},
    }
    accounts = [account(f"{name}@example.com", **changes) for name, changes in people.items()]
    await add(storage, *accounts)
    week_ago = NOW - 7 * DAY
    await log(pool, accounts[0].id, "backup_code_used", week_ago - MICROSECOND, week_ago, NOW)
    await log(pool, accounts[2].id, "mfa_verify_failed", week_ago - MICROSECOND, week_ago, NOW, NOW)
    await log(pool, accounts[2].id, "mfa_verify_attempt", NOW)
    async with storage.reading() as read:
        assert await read.platform_users.mfa_metrics(week_ago) == MfaMetrics(3, 2, backup_codes_used=2, failures=3)


async def test_metrics_without_users_are_zero(storage: Postgres) -> None:
    async with storage.reading() as read:
        assert await read.platform_users.mfa_metrics(NOW) == MfaMetrics(0, 0, 0, 0)


# Alerts

SINCE = NOW - DAY


async def alerts(storage: Postgres, limit: int = 100) -> list[MfaAlert]:
    async with storage.reading() as read:
        return await read.platform_users.alerts(SINCE, limit)


async def log_in(pool: Pool, user: UUID, at: datetime, *, success: bool = True) -> None:
    insert = """
        insert into login_events (id, user_id, provider, success, address, created_at) values (%s, %s, 'password', %s, '203.0.113.9', %s)"""
    await run_sql(pool, insert, uuid4(), user, success, at)


@pytest.mark.parametrize(
    ("event", "threshold", "kind"),
    [
        ("mfa_verify_failed", FAILURE_ALERT_THRESHOLD, MfaAlertType.REPEATED_FAILURES),
        ("backup_code_used", BACKUP_CODE_ALERT_THRESHOLD, MfaAlertType.BACKUP_CODE_BURST),
    ],
)
async def test_reaching_the_threshold_in_the_period_is_an_alert(
    storage: Postgres, pool: Pool, event: str, threshold: int, kind: MfaAlertType
) -> None:
    await add(storage, user := account(), eve := account(EVE))
    times = [SINCE + number * SECOND for number in range(threshold)]
    await log(pool, user.id, event, SINCE - MICROSECOND, *times[1:])
    await log(pool, eve.id, event, *times)
    await log(pool, user.id, "mfa_verify_attempt", *times)
    [alert] = await alerts(storage)
    assert alert == MfaAlert(eve.id, EVE, kind, {"count": threshold, "first_at": rfc3339(SINCE)}, times[-1])
    await log(pool, eve.id, event, NOW)
    [alert] = await alerts(storage)
    assert (alert.details["count"], alert.detected_at) == (threshold + 1, NOW), "still one"


@pytest.mark.parametrize(
    ("before", "success", "is_alert"),
    [
        (timedelta(0), True, True),
        (SHORTLY_AFTER_LOGIN, True, True),
        (SHORTLY_AFTER_LOGIN + MICROSECOND, True, False),
        (-MICROSECOND, True, False),
        (SECOND, False, False),
    ],
)
async def test_turning_the_second_factor_off_after_a_login_is_an_alert(
    storage: Postgres, pool: Pool, before: timedelta, success: bool, is_alert: bool
) -> None:
    await add(storage, user := account(), eve := account(EVE))
    await log(pool, user.id, "mfa_disabled", NOW)
    await log_in(pool, user.id, NOW - before, success=success)
    await log_in(pool, eve.id, NOW)
    details = {"login_at": rfc3339(NOW - before), "ip_address": "203.0.113.9"}
    assert await alerts(storage) == ([MfaAlert(user.id, ADA, MfaAlertType.DISABLED_AFTER_LOGIN, details, NOW)] if is_alert else [])


async def test_an_alert_names_the_last_login_before_it(storage: Postgres, pool: Pool) -> None:
    user = await add(storage, account())
    for minutes in (9, 3, 6, -1):
        await log_in(pool, user.id, NOW - timedelta(minutes=minutes))
    await log(pool, user.id, "mfa_disabled", NOW)
    [alert] = await alerts(storage)
    assert alert.details["login_at"] == rfc3339(NOW - timedelta(minutes=3))


async def test_disabling_before_the_period_or_by_a_platform_owner_is_no_alert(storage: Postgres, pool: Pool) -> None:
    user = await add(storage, account())
    await log_in(pool, user.id, SINCE - SECOND)
    await log_in(pool, user.id, NOW)
    await log(pool, user.id, "mfa_disabled", SINCE - MICROSECOND)
    await log(pool, user.id, "mfa_force_disabled_by_admin", NOW)
    assert await alerts(storage) == []


async def test_the_newest_alerts_come_first_up_to_the_limit(storage: Postgres, pool: Pool) -> None:
    people = [account(f"person-{number}@example.com") for number in range(6)]
    await add(storage, *people)
    for number, person in enumerate(people):
        at = NOW - number * SECOND
        if number % 3 == 0:
            await log(pool, person.id, "mfa_verify_failed", *[at] * FAILURE_ALERT_THRESHOLD)
        elif number % 3 == 1:
            await log(pool, person.id, "backup_code_used", *[at] * BACKUP_CODE_ALERT_THRESHOLD)
        else:
            await log_in(pool, person.id, at)
            await log(pool, person.id, "mfa_disabled", at)
    all_alerts = await alerts(storage)
    assert [(alert.email, alert.type) for alert in all_alerts] == [
        (Email(f"person-{number}@example.com"), [*MfaAlertType][number % 3]) for number in range(6)
    ]
    for limit in (1, 2, 5):
        assert await alerts(storage, limit) == all_alerts[:limit]


async def test_one_user_can_have_several_alerts(storage: Postgres, pool: Pool) -> None:
    user = await add(storage, account())
    await log(pool, user.id, "mfa_verify_failed", *[NOW] * FAILURE_ALERT_THRESHOLD)
    await log(pool, user.id, "backup_code_used", *[NOW] * BACKUP_CODE_ALERT_THRESHOLD)
    assert [alert.type for alert in await alerts(storage)] == [MfaAlertType.BACKUP_CODE_BURST, MfaAlertType.REPEATED_FAILURES]
