"""Who sees which sign-ins: two organizations, an unconfirmed member, an application user and a stranger (decision 220)."""

from collections import Counter
from datetime import datetime, timedelta
from functools import partial
from uuid import UUID

import pytest

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.accounts.model.devices import Location
from core.applications.model.figures import FigurePeriod, FigureSpan, start_of_day
from core.authentication.model.login import LoginFailure
from core.authentication.model.sign_in_log import MAX_FAILURES, UNKNOWN_ACCOUNT, SignInFilter
from core.kernel.causes import SYSTEM
from core.kernel.values import Email, Page, digest, new_id
from core.maintenance.model.housekeeping import Sweep
from ports.storage import Transaction
from tests.authentication.storage.sign_ins import CLIENT, Cast, fail, log, named
from tests.support.builders import add_member, one_factor, run_concurrently, run_sql
from tests.support.rows import DAY, NOW, SECOND, session, within

FAILURES = [LoginFailure.CREDENTIALS, LoginFailure.LOCKED, LoginFailure.MFA, LoginFailure.UNVERIFIED, LoginFailure.CLOSED]


@pytest.mark.parametrize("reason", FAILURES)
async def test_an_organization_sees_failures_of_its_members_and_users_at_its_application(
    storage: Postgres, cast: Cast, reason: LoginFailure
) -> None:
    await fail(storage, cast.member, cast.shop, reason=reason, location=Location("Berlin", "DE"))
    await fail(storage, cast.customer, cast.shop, reason=reason, at=NOW + SECOND)
    of_customer, of_member = await log(storage, cast.shop.org_id)
    assert named([of_customer, of_member]) == [
        (cast.customer, "customer@example.com", reason, 1),
        (cast.member, "member@example.com", reason, 1),
    ]
    assert (of_member.service_id, of_member.address, of_member.agent, of_member.city) == (cast.shop.id, CLIENT, "tests", "Berlin")
    assert await log(storage, cast.rival.org_id) == []
    assert named(await log(storage, None)) == named([of_customer, of_member])


@pytest.mark.parametrize("reason", FAILURES)
@pytest.mark.parametrize("provider", ["password", "codehost", "email"])
async def test_attempts_at_a_strangers_account_look_like_those_at_no_account(
    storage: Postgres, pool: Pool, cast: Cast, reason: LoginFailure, provider: str
) -> None:
    """Every attempt has its own minute, and so its own row. The rows must not differ in anything but time and id."""
    users = [cast.stranger, cast.invited, new_id(), None]
    for minute, user in enumerate(users):
        at, agent = NOW + timedelta(minutes=minute), f"agent {user}"
        for _ in range(MAX_FAILURES + 5):  # more than are recorded for an account
            await fail(storage, user, cast.shop, reason=reason, provider=provider, at=at, agent=agent)
    rows = await log(storage, cast.shop.org_id)
    assert {(each.user_id, each.email, each.reason, each.provider, each.agent, each.attempts) for each in rows} == {
        (None, None, UNKNOWN_ACCOUNT, "", None, MAX_FAILURES + 5)
    }
    assert len(rows) == len(users)
    # Nothing changes when the stranger joins later.
    await add_member(pool, cast.shop.org_id, cast.stranger, confirmed=True)
    await run_sql(pool, "update memberships set confirmed_at = %s", NOW - DAY)
    assert await log(storage, cast.shop.org_id) == rows
    assert await log(storage, cast.shop.org_id, user_id=cast.stranger) == []
    assert await log(storage, cast.rival.org_id) == []


async def test_the_platform_sees_the_accounts_of_strangers_and_no_attempt_twice(storage: Postgres, cast: Cast) -> None:
    await fail(storage, cast.stranger, cast.shop, reason=LoginFailure.MFA)
    await fail(storage, None, cast.shop, at=NOW - 61 * SECOND)
    await fail(storage, None, None, at=NOW - 122 * SECOND)
    assert named(await log(storage, None)) == [
        (cast.stranger, "stranger@example.com", "mfa", 1),
        (None, None, UNKNOWN_ACCOUNT, 1),
        (None, None, UNKNOWN_ACCOUNT, 1),
    ]


async def test_an_organization_sees_the_attempts_of_confirmed_members_at_the_platform_since_they_joined(
    storage: Postgres, pool: Pool, cast: Cast
) -> None:
    for user in (cast.member, cast.invited, cast.customer, cast.stranger, None):
        await fail(storage, user, None)
    await fail(storage, cast.member, None, at=NOW - 2 * DAY)
    assert named(await log(storage, cast.shop.org_id)) == [(cast.member, "member@example.com", "credentials", 1)]
    assert await log(storage, cast.rival.org_id) == []
    await run_sql(pool, "update organizations set approved_at = null")  # anyone can create such an organization
    assert await log(storage, cast.shop.org_id) == []


@pytest.mark.parametrize("members", [1, 100_000])
async def test_organizations_of_every_size_list_the_newest_attempts_of_their_members(
    storage: Postgres, pool: Pool, cast: Cast, members: int
) -> None:
    """A large organization's attempts are found among the platform's attempts, if these contain enough of them."""
    await add_member(pool, cast.shop.org_id, cast.customer, confirmed=True)
    await run_sql(pool, "update memberships set confirmed_at = %s where confirmed_at is not null", NOW - DAY)
    await run_sql(pool, "update organizations set member_count = %s", members)
    people = (cast.member, cast.stranger, cast.customer, cast.invited)
    for number in range(40):
        await fail(storage, people[number % 4], (None, None, cast.rival)[number % 3], at=NOW + number * SECOND)
    expected = [number for number in range(39, -1, -1) if number % 2 == 0 and number % 3 < 2]
    for limit in (1, 5, len(expected), 50):
        for filters in ({}, {"success": False}, {"since": NOW + 6 * SECOND}):
            numbers = [number for number in expected if number >= 6 or "since" not in filters]
            async with storage.reading() as read:
                page = await read.sign_in_log.page(cast.shop.org_id, SignInFilter(**filters), Page(1, limit))
            assert [(each.created_at - NOW) / SECOND for each in page.items] == numbers[:limit]
            assert page.total == len(numbers)


async def test_no_organization_sees_attempts_on_the_way_to_anothers_application(storage: Postgres, cast: Cast) -> None:
    await fail(storage, cast.member, cast.rival)
    new_session = session(cast.member, service=None, proofs=one_factor(NOW), created_at=NOW)
    await within(storage, lambda tx: tx.logins.begin_browser_session(new_session, digest("secret"), None, for_application=True))
    assert await log(storage, cast.shop.org_id) == []
    assert named(await log(storage, cast.rival.org_id)) == [(None, None, UNKNOWN_ACCOUNT, 1)]
    assert [each.user_id for each in await log(storage, None)] == [cast.member, cast.member]


async def test_an_organization_knows_the_people_of_its_directory(storage: Postgres, pool: Pool, cast: Cast) -> None:
    """A user that the directory blocks is no member."""
    await run_sql(
        pool,
        "insert into scim_users (org_id, user_id, provisioned, email, updated_at) values (%s, %s, true, 'kai@acme.example', %s)",
        *(cast.shop.org_id, cast.stranger, NOW),
    )
    await fail(storage, cast.stranger, cast.shop, reason=LoginFailure.DIRECTORY)
    assert named(await log(storage, cast.shop.org_id)) == [(cast.stranger, "kai@acme.example", "directory", 1)]


async def test_a_user_is_found_by_the_address_that_the_log_shows(storage: Postgres, pool: Pool, cast: Cast) -> None:
    async def find(org_id: UUID | None, name: str) -> UUID | None:
        async with storage.reading() as read:
            return await read.sign_in_log.find_user(org_id, Email.parse(f"{name}@example.com"))

    people = {"member": cast.member, "invited": cast.invited, "customer": cast.customer, "stranger": cast.stranger, "nobody": None}
    assert {name: await find(None, name) for name in people} == people
    known = people | {"invited": None, "stranger": None}
    assert {name: await find(cast.shop.org_id, name) for name in people} == known
    assert {await find(cast.rival.org_id, name) for name in people} == {None}
    for email, name in ((None, "stranger"), ("kai@example.com", "kai")):
        await run_sql(
            pool,
            "insert into scim_users (org_id, user_id, provisioned, email, updated_at) values (%s, %s, true, %s, %s)",
            *(cast.shop.org_id, cast.stranger, email, NOW),
        )
        assert await find(cast.shop.org_id, name) == cast.stranger
        await run_sql(pool, "delete from scim_users")


async def test_successes_are_in_the_log_of_the_application_and_of_the_members(storage: Postgres, cast: Cast) -> None:
    at_shop = session(cast.stranger, service=cast.shop, created_at=NOW)
    at_platform = session(cast.member, service=None, proofs=one_factor(NOW), created_at=NOW + SECOND)
    await within(storage, lambda tx: tx.logins.record_success(at_shop, "password"))
    await within(storage, lambda tx: tx.logins.begin_browser_session(at_platform, digest("secret"), None))
    rows = await log(storage, cast.shop.org_id, success=True)
    assert [(each.user_id, each.service_id, each.success) for each in rows] == [
        (cast.member, None, True),
        (cast.stranger, cast.shop.id, True),
    ]
    assert await log(storage, cast.shop.org_id, success=False) == []
    assert await log(storage, cast.rival.org_id) == []


async def test_the_address_of_a_former_member_is_not_shown(storage: Postgres, pool: Pool, cast: Cast) -> None:
    await fail(storage, cast.member, cast.shop)
    await run_sql(pool, "delete from memberships where user_id = %s", cast.member)
    assert named(await log(storage, cast.shop.org_id)) == [(cast.member, None, "credentials", 1)]


async def test_filters(storage: Postgres, cast: Cast) -> None:
    await fail(storage, cast.member, cast.shop)
    await fail(storage, cast.customer, cast.shop, reason=LoginFailure.ACCESS, at=NOW + SECOND)
    await fail(storage, cast.member, None, at=NOW + 2 * SECOND)
    org = cast.shop.org_id
    assert [each.user_id for each in await log(storage, org, user_id=cast.member)] == [cast.member, cast.member]
    assert [each.user_id for each in await log(storage, org, service_id=cast.shop.id)] == [cast.customer, cast.member]
    assert [each.user_id for each in await log(storage, org, reason="access")] == [cast.customer]
    assert [each.user_id for each in await log(storage, org, since=NOW + SECOND, until=NOW + 2 * SECOND)] == [cast.customer]
    async with storage.reading() as read:
        [last] = await read.sign_in_log.batch(org, SignInFilter(), None, 1)
        rest = await read.sign_in_log.batch(org, SignInFilter(), last, 9)
        page = await read.sign_in_log.page(org, SignInFilter(), Page(2, 1))
    assert [each.created_at for each in [last, *rest]] == [NOW + 2 * SECOND, NOW + SECOND, NOW]
    assert (page.items, page.total) == (rest[:1], 3)


async def test_at_most_twenty_failures_an_hour_are_recorded_of_an_account(storage: Postgres, cast: Cast) -> None:
    for second in range(MAX_FAILURES + 3):
        await fail(storage, cast.member, cast.shop, at=NOW + second * SECOND)
    assert len(await log(storage, cast.shop.org_id)) == MAX_FAILURES
    await fail(storage, cast.member, cast.shop, at=NOW + timedelta(hours=2))
    assert len(await log(storage, cast.shop.org_id)) == MAX_FAILURES + 1


@pytest.mark.parametrize("address", [CLIENT, None])
async def test_unknown_accounts_have_one_row_a_minute_for_each_client(storage: Postgres, cast: Cast, address: str | None) -> None:
    await run_concurrently(20, lambda _: fail(storage, None, cast.shop, address=address))
    await fail(storage, None, cast.shop, address="198.51.100.1")
    await fail(storage, None, cast.shop, address=address, at=NOW + timedelta(minutes=1))
    counts = [(each.address or "", each.attempts) for each in await log(storage, cast.shop.org_id)]
    assert sorted(counts) == sorted([(address or "", 20), ("198.51.100.1", 1), (address or "", 1)])


async def test_errors_of_a_provider_keep_their_reason(storage: Postgres, cast: Cast) -> None:
    await fail(storage, None, cast.shop, reason=LoginFailure.PROVIDER, provider="codehost")
    [seen] = await log(storage, cast.shop.org_id)
    assert (seen.provider, seen.reason, seen.service_id) == ("codehost", "provider", cast.shop.id)


async def test_only_old_failures_are_swept(storage: Postgres, pool: Pool, cast: Cast) -> None:
    await fail(storage, cast.member, cast.shop, at=NOW - SECOND)
    await fail(storage, None, None, at=NOW - timedelta(minutes=2))
    await fail(storage, cast.member, cast.shop)
    old = session(cast.member, service=None, created_at=NOW - DAY)
    await within(storage, lambda tx: tx.logins.record_success(old, "password"))
    assert await within(storage, lambda tx: tx.housekeeping.sweep(Sweep.FAILED_LOGINS, NOW, 100)) == 3
    assert await run_sql(pool, "select success, created_at from login_events order by 2") == [(True, NOW - DAY), (False, NOW)]


async def test_the_figures_of_an_organization_count_what_its_log_shows(storage: Postgres, pool: Pool, cast: Cast) -> None:
    people = (cast.member, cast.invited, cast.customer, cast.stranger, new_id(), None)
    for number, reason in enumerate((*FAILURES, LoginFailure.PROVIDER)):
        for service in (cast.shop, cast.rival, None):
            for user in people[: number + 1]:
                await fail(storage, user, service, reason=reason, at=NOW - number * SECOND)
    await fail(storage, cast.member, None, at=NOW - 2 * DAY)  # before the member joined
    both = (
        await within(storage, lambda tx: tx.figure_counting.next_hour(NOW - 3 * DAY, NOW)),
        NOW.replace(minute=0, second=0, microsecond=0),
    )
    for hour in both:
        await within(storage, partial(count_hour, hour))
    for org_id in (cast.shop.org_id, cast.rival.org_id, None):
        shown: Counter[str] = Counter()
        for each in await log(storage, org_id):
            shown[str(each.reason)] += each.attempts
        for span, count in ((FigureSpan.HOUR, 72), (FigureSpan.DAY, 3)):
            first = start_of_day(NOW) - 2 * DAY
            async with storage.reading() as read:
                counted = await read.figures.by_result(org_id, FigurePeriod(span, first, count))
            assert {reason: sum(counts) for reason, counts in counted.items()} == dict(shown)


async def count_hour(hour: datetime, tx: Transaction) -> None:
    await tx.figure_counting.count_hour(hour)


async def test_the_activity_of_an_application_is_its_last_success_and_failure(storage: Postgres, cast: Cast) -> None:
    async def activity(org: UUID, service: UUID) -> tuple[UUID | None, str | None]:
        async with storage.reading() as read:
            result = await read.sign_in_log.last_of_service(org, service)
        success, failure = result.last_success, result.last_failure
        return None if success is None else success.user_id, None if failure is None else failure.reason

    assert await activity(cast.shop.org_id, cast.shop.id) == (None, None)
    await fail(storage, cast.customer, cast.shop, reason=LoginFailure.MFA)
    await fail(storage, cast.member, cast.shop, reason=LoginFailure.ACCESS, at=NOW - SECOND)
    await fail(storage, cast.member, None, at=NOW + SECOND)
    async with storage.transaction(by=SYSTEM) as tx:
        for user, moment in ((cast.customer, NOW), (cast.member, NOW + SECOND)):
            await tx.logins.record_success(session(user, service=cast.shop, created_at=moment), "password")
    assert await activity(cast.shop.org_id, cast.shop.id) == (cast.member, "mfa")
    async with storage.reading() as read:
        both = [cast.shop.id, cast.rival.id]
        assert await read.sign_in_log.last_successes(cast.shop.org_id, both) == {cast.shop.id: NOW + SECOND}
        assert await read.sign_in_log.last_successes(cast.rival.org_id, both) == {}
    await fail(storage, cast.stranger, cast.shop, reason=LoginFailure.MFA, at=NOW + DAY)
    assert await activity(cast.shop.org_id, cast.shop.id) == (cast.member, UNKNOWN_ACCOUNT)
    assert await activity(cast.rival.org_id, cast.shop.id) == (None, None), "the application belongs to another organization"
    # The account limit is reached, so an old row counts the last attempts. The minute row counts nothing.
    for number in range(MAX_FAILURES + 1):
        await fail(storage, cast.customer, cast.shop, at=NOW + 2 * DAY + number * SECOND)
    assert await activity(cast.shop.org_id, cast.shop.id) == (cast.member, "credentials")
