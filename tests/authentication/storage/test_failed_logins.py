"""How many rows failed sign-ins add, that all attempts write alike, and their events (decision 220, security B-2)."""

import json
from collections import Counter
from datetime import timedelta
from itertools import product
from typing import Any
from uuid import UUID

import pytest

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.authentication.events import sign_in_failed
from core.authentication.model.login import LoginFailure
from core.authentication.model.sign_in_log import (
    MANY_ATTEMPTS,
    MAX_COUNTED_NETWORKS,
    MAX_ELSEWHERE,
    MAX_FAILURES,
    MAX_NAMED_FAILURES,
    UNKNOWN_ACCOUNT,
    counted_rows_a_minute,
    to_network,
)
from core.kernel.event_catalog import SIGN_IN_FAILED
from core.kernel.values import new_id
from ports import Ports
from tests.authentication.storage.sign_ins import Cast, fail, log, named
from tests.support.builders import add_member, run_sql
from tests.support.rows import DAY, NOW, SECOND, account, add, failed_login, within
from tests.support.services import enroll_user
from tests.support.webhooks import add_webhook, queue
from tests.tables import table

MINUTE = timedelta(minutes=1)


async def count_rows(pool: Pool) -> int:
    [(rows,)] = await run_sql(pool, "select count(*) from login_events")
    return int(rows)


async def rows_written(storage: Postgres, pool: Pool, user: UUID | None, *arguments: Any, **changes: Any) -> list[tuple[str, int]]:
    """Return how many rows an attempt adds per table: new rows and new versions."""
    tables = ("login_events", "events", "webhook_deliveries")
    [(before,)] = await run_sql(pool, "select txid_snapshot_xmax(txid_current_snapshot())")
    await fail(storage, user, *arguments, **changes)
    counts = [await run_sql(pool, f"select count(*) from {table} where xmin::text::bigint >= %s", before) for table in tables]  # noqa: S608
    return [(table, rows[0][0]) for table, rows in zip(tables, counts, strict=True)]


@pytest.mark.parametrize("reason", [LoginFailure.CREDENTIALS, LoginFailure.LOCKED])
async def test_every_attempt_writes_the_same_number_of_rows(storage: Postgres, pool: Pool, cast: Cast, reason: LoginFailure) -> None:
    """The first and second attempts, and attempts above the account limit or the minute limit, write the same rows."""
    people = (cast.member, cast.customer, cast.invited, cast.stranger, new_id(), None)
    for service, rows in ((cast.shop, 2), (None, 1)):
        written = [
            await rows_written(storage, pool, user, service, reason=reason, address=f"203.0.113.{number}")
            for number in range(MAX_FAILURES + 2)
            for user in people
        ]
        assert {tuple(each) for each in written} == {(("login_events", rows), ("events", 0), ("webhook_deliveries", 0))}


async def test_attempts_from_many_networks_are_counted_in_one_row(storage: Postgres, cast: Cast) -> None:
    networks = MAX_COUNTED_NETWORKS + 7
    for number, repeat in product(range(networks), range(2)):
        await fail(storage, cast.stranger if number % 2 else None, cast.shop, address=f"198.51.100.{number}", agent=f"{repeat}")
    rows = await log(storage, cast.shop.org_id)
    assert sorted((each.reason, each.address is None, each.attempts) for each in rows) == [
        (MANY_ATTEMPTS, True, 14),
        *[(UNKNOWN_ACCOUNT, False, 2)] * MAX_COUNTED_NETWORKS,
    ]
    assert {(each.user_id, each.provider, each.agent) for each in rows} == {(None, "", None)}
    # Another organization's minute is its own, and the next minute begins again.
    await fail(storage, None, cast.rival, address="198.51.100.99")
    assert [each.address for each in await log(storage, cast.rival.org_id)] == ["198.51.100.99"]
    await fail(storage, None, cast.shop, address="198.51.100.99", at=NOW + MINUTE)
    assert (await log(storage, cast.shop.org_id))[0].address == "198.51.100.99"


@table(
    ("address", "network"),
    [
        ("198.51.100.7", "198.51.100.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::", "2001:db8:1:2::/64"),
        ("unknown", "unknown"),
        (None, None),
    ],
)
def test_an_ipv6_client_is_its_network(address: str | None, network: str | None) -> None:
    assert to_network(address) == network


async def test_the_addresses_of_an_ipv6_network_have_one_row(storage: Postgres, cast: Cast) -> None:
    for number in range(5):
        await fail(storage, None, cast.shop, address=f"2001:db8::{number}")
    assert [(each.address, each.attempts) for each in await log(storage, cast.shop.org_id)] == [("2001:db8::/64", 5)]


async def test_the_newest_row_of_an_account_counts_what_is_over_its_limit(storage: Postgres, cast: Cast) -> None:
    for number in range(MAX_FAILURES + 5):
        await fail(storage, cast.member, cast.shop, at=NOW + number * SECOND)
    rows = await log(storage, cast.shop.org_id)
    assert [each.attempts for each in rows] == [6, *[1] * (MAX_FAILURES - 1)]
    # An attempt elsewhere is counted there.
    await fail(storage, cast.member, cast.rival, at=NOW + 40 * SECOND)
    await fail(storage, cast.member, None, at=NOW + 40 * SECOND)
    assert await log(storage, cast.shop.org_id) == rows
    assert named(await log(storage, cast.rival.org_id)) == [(None, None, UNKNOWN_ACCOUNT, 1)]
    assert sorted(named(await log(storage, None, reason=MANY_ATTEMPTS))) == [(None, None, MANY_ATTEMPTS, 1)] * 2


async def test_failures_elsewhere_leave_rows_for_those_that_an_organization_sees(storage: Postgres, cast: Cast) -> None:
    for number in range(MAX_FAILURES + 5):
        await fail(
            storage,
            cast.member,
            cast.rival,
            at=NOW + number * SECOND,
            reason=LoginFailure.LOCKED if number % 2 else LoginFailure.CREDENTIALS,
        )
    of_platform = await log(storage, None, user_id=cast.member)
    assert (len(of_platform), sum(each.attempts for each in of_platform)) == (MAX_ELSEWHERE, MAX_FAILURES + 5)
    for reason, service in product((LoginFailure.CREDENTIALS, LoginFailure.LOCKED), (cast.shop, None)):
        await fail(storage, cast.member, service, at=NOW + 40 * SECOND, reason=reason)
    seen = await log(storage, cast.shop.org_id, user_id=cast.member)
    assert Counter(each.reason for each in seen) == {LoginFailure.CREDENTIALS: 2, LoginFailure.LOCKED: 2}


async def test_the_directory_of_the_managing_organization_is_a_reason_of_its_own(storage: Postgres, pool: Pool, cast: Cast) -> None:
    await run_sql(pool, "update users set origin = 'scim', origin_org_id = %s where id = %s", cast.shop.org_id, cast.member)
    for number, (org_id, reason) in enumerate(((cast.rival.org_id, LoginFailure.CLOSED), (cast.shop.org_id, LoginFailure.DIRECTORY))):
        await run_sql(pool, "insert into directory_blocks (org_id, user_id, since) values (%s, %s, %s)", org_id, cast.member, NOW)
        await fail(storage, cast.member, cast.shop, reason=LoginFailure.CLOSED, at=NOW + number * SECOND)
        assert (await log(storage, cast.shop.org_id))[0].reason == reason


async def test_a_million_attempts_in_a_day_add_less_than_a_hundred_thousand_rows(storage: Postgres, pool: Pool, cast: Cast) -> None:
    """The test runs three minutes from such a day, from many networks at known and unknown accounts, and calculates the rest."""
    assert MAX_NAMED_FAILURES * 24 + counted_rows_a_minute() * 24 * 60 < 100_000
    minutes, attempts, left = 3, 150, 30
    before = MAX_NAMED_FAILURES - left
    await run_sql(
        pool,
        "insert into login_events (id, user_id, org_id, service_id, provider, success, reason, created_at) "
        "select gen_random_uuid(), %s, %s, %s, 'password', false, 'mfa', %s from generate_series(1, %s)",
        *(cast.member, cast.shop.org_id, cast.shop.id, NOW - 30 * MINUTE, before),
    )
    known = [(await add(storage, account(f"user-{number}@example.com"))).id for number in range(left + 5)]
    for user in known[::2]:
        await within(storage, lambda tx: enroll_user(tx, cast.shop.id, user, NOW - DAY))  # noqa: B023
    for minute, number in product(range(minutes), range(attempts)):
        account_id = known[number // 2 % len(known)] if number % 2 else None
        await fail(
            storage,
            account_id,
            cast.shop,
            at=NOW + minute * MINUTE + number * timedelta(milliseconds=200),
            address=f"10.0.{minute}.{number}",
        )
    assert await count_rows(pool) <= before + left + minutes * counted_rows_a_minute()
    assert await run_sql(pool, "select count(*) from login_events where user_id = any(%s)", known) == [(left,)]
    [(counted,)] = await run_sql(pool, "select sum(attempts) from login_events where seen_by <> 'organization'")
    assert counted == before + minutes * attempts, "none is lost"


async def test_failures_are_found_by_their_request(storage: Postgres, cast: Cast) -> None:
    await fail(storage, cast.member, cast.shop, request_id="request-1", blocked_until=NOW + 44.2 * SECOND)
    await fail(storage, cast.stranger, cast.shop, request_id="request-2")
    [mine] = await log(storage, cast.shop.org_id, request_id="request-1")
    assert (mine.user_id, mine.request_id, mine.blocked_seconds) == (cast.member, "request-1", 45)
    await fail(storage, None, cast.shop, request_id="request-3", address="203.0.113.7")
    for request, platform in (("request-2", cast.stranger), ("request-3", None)):
        assert named(await log(storage, cast.shop.org_id, request_id=request)) == [(None, None, UNKNOWN_ACCOUNT, 1)]
        assert [each.user_id for each in await log(storage, None, request_id=request)] == [platform]


async def test_an_organization_gets_events_of_what_its_log_shows(ports: Ports, storage: Postgres, pool: Pool, cast: Cast) -> None:
    """All kinds of people sign in at the organization's application, at another organization's application and at the platform."""
    orgs = (cast.shop.org_id, cast.rival.org_id)
    await add_member(pool, cast.rival.org_id, cast.customer, confirmed=True)
    await run_sql(pool, "update memberships set confirmed_at = %s where confirmed_at is not null", NOW - DAY)
    for org in orgs:
        await add_webhook(ports, org, "https://hooks.example/in", [SIGN_IN_FAILED])
    people = (cast.member, cast.invited, cast.customer, cast.stranger, None)
    for number, (user, service) in enumerate(product(people, (cast.shop, cast.rival, None))):
        for repeat in range(2):
            await fail(storage, user, service, at=NOW + number * MINUTE, request_id=f"request-{number}-{repeat}")
    deliveries = [json.loads(json.dumps(each["payload"])) for each in await queue(pool)]
    for org in orgs:
        payloads = [each["data"] for each in deliveries if each["organization_id"] == str(org)]
        rows = await log(storage, org)
        assert sorted(each["sign_in_id"] for each in payloads) == sorted(str(each.id) for each in rows)
        facts = {str(each.id): (each.user_id and str(each.user_id), each.reason, each.request_id) for each in rows}
        assert {each["sign_in_id"]: (each["user_id"], each["reason"], each["request_id"]) for each in payloads} == facts
        places = {str(each.id): each.service_id and str(each.service_id) for each in rows}
        assert {each["sign_in_id"]: each["service_id"] for each in payloads} == places
    assert {each["actor"]["kind"] for each in deliveries} == {"anonymous"}
    documented = sign_in_failed(failed_login(None)).details.keys()
    assert all(each["data"].keys() == documented | {"target_type", "target_id"} for each in deliveries)
    [(events,)] = await run_sql(pool, "select count(*) from events")
    assert events == len(deliveries)


async def test_failures_are_no_event_unless_a_webhook_has_chosen_them(ports: Ports, storage: Postgres, pool: Pool, cast: Cast) -> None:
    await add_webhook(ports, cast.shop.org_id, "https://hooks.example/in", ["user.login.success"])
    await add_webhook(ports, cast.shop.org_id, "https://hooks.example/off", [SIGN_IN_FAILED], is_active=False)
    for user in (cast.member, cast.stranger, None):
        await fail(storage, user, cast.shop)
    assert await queue(pool) == []
    assert await run_sql(pool, "select name from events") == []
