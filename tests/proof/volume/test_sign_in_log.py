"""An organization's sign-in log reads little more than its page."""

from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from hashlib import md5
from typing import Any, Final
from uuid import UUID

import pytest

from adapters.postgres.engine.connecting import connect
from adapters.postgres.repositories import Repositories
from core.authentication.model.sign_in_log import MAX_LISTED, SignInFilter
from core.kernel.values import Email, Page
from ports.signals import NoSignals
from tests.proof.volume.plans import PLAN_MODES, count_reads, filled_database
from tests.support.builders import make_vault
from tests.support.rows import NOW

pytestmark = pytest.mark.slow

ORG = UUID(int=1)
MEMBERS, EACH = 300, 150
# 300 members' sign-ins to the platform, in turns.
INSERTS: Final = """
    insert into organizations (id, slug, name, status, approved_at, member_count, created_at, updated_at)
    values (%(org)s, 'acme', 'acme', 'active', %(now)s, %(count)s, %(now)s, %(now)s);
    insert into users (id, email, origin, created_at, updated_at)
    select md5('u' || n)::uuid, n || '@example.com', 'platform', %(now)s, %(now)s from generate_series(1, 10000) n;
    insert into memberships (id, org_id, user_id, email, role, created_at, confirmed_at)
    select gen_random_uuid(), %(org)s, md5('u' || n)::uuid, n || '@example.com', 'member', %(now)s - interval '1 year',
           %(now)s - interval '1 year'
    from generate_series(1, %(members)s) n;
    insert into login_events (id, user_id, provider, success, address, created_at)
    select gen_random_uuid(), md5('u' || (1 + n %% %(members)s))::uuid, 'password', true, '203.0.113.9', %(now)s - n * interval '1 min'
    from generate_series(0, %(members)s * %(each)s - 1) n"""
# An application with many attempts, among many with few: a generic plan expects few per
# application.
SERVICE: Final = UUID(int=2)
ATTEMPTS: Final = 20_000
AT_SERVICES: Final = """
    insert into users (id, email, origin, created_at, updated_at) values (%(user)s, 'one@example.com', 'platform', %(now)s, %(now)s);
    insert into login_events (id, user_id, org_id, service_id, provider, success, reason, created_at)
    select gen_random_uuid(), %(user)s, %(org)s, %(service)s, 'password', n %% 2 = 0, case when n %% 2 = 1 then 'credentials' end,
           %(now)s - n * interval '1 min'
    from generate_series(0, %(attempts)s - 1) n
    union all
    select gen_random_uuid(), %(user)s, md5('o' || n %% 2000)::uuid, md5('s' || n %% 2000)::uuid, 'password', true, null,
           %(now)s - n * interval '1 min'
    from generate_series(0, 9999) n"""
TABLES: Final = ("organizations", "users", "memberships", "login_events")


@pytest.fixture(scope="module", params=[1, MEMBERS])
def large_database(server: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """Organizations with few members read every member's attempts, and large organizations read the whole platform's attempts first."""
    values = {"org": ORG, "members": MEMBERS, "each": EACH, "count": request.param, "now": NOW}
    with filled_database(server, INSERTS, values, *TABLES) as conninfo:
        yield conninfo


@pytest.mark.parametrize("mode", PLAN_MODES)
async def test_a_batch_of_an_export_reads_no_older_attempts_of_each_member(large_database: str, mode: str) -> None:
    size = MEMBERS // 2
    async with await connect(large_database, timeout=5) as connection:
        log = Repositories(connection, make_vault(), NoSignals()).sign_in_log
        batch, reads = await count_reads(connection, mode, partial(log.batch, ORG, SignInFilter(), None, size))
    assert [(NOW - each.created_at).total_seconds() / 60 for each in batch] == list(range(size))
    # Every member's newest attempt, and the batch a few times
    assert reads.rows["login_events"] <= MEMBERS + 4 * size, reads.rows


@pytest.mark.parametrize("mode", PLAN_MODES)
async def test_the_attempts_of_a_user_are_found_by_index(large_database: str, mode: str) -> None:
    user = UUID(md5(b"u77", usedforsecurity=False).hexdigest())
    async with await connect(large_database, timeout=5) as connection:
        log = Repositories(connection, make_vault(), NoSignals()).sign_in_log
        own = SignInFilter(user_id=user, since=NOW - timedelta(days=90))
        page, reads = await count_reads(connection, mode, partial(log.page, None, own, Page(1, 10)))
    assert (len(page.items), page.total, {each.user_id for each in page.items}) == (10, EACH, {user})
    assert reads.rows["login_events"] <= 2 * EACH, reads.rows


SERVICES, SUCCESSES, FAILURES = 20, 500, 500
# An organization with many applications. After a user's last sign-in, attempts failed on later days.
MANY_SERVICES: Final = """
    insert into organizations (id, slug, name, status, approved_at, created_at, updated_at)
    values (%(org)s, 'acme', 'acme', 'active', %(now)s, %(now)s, %(now)s);
    insert into users (id, email, origin, created_at, updated_at)
    select md5('u' || n)::uuid, n || '@example.com', 'platform', %(now)s, %(now)s from generate_series(1, 20000) n;
    insert into end_users (org_id, user_id, email, deactivated, created_at)
    select %(org)s, md5('u' || n)::uuid, n || '@example.com', false, %(now)s from generate_series(1, 20000) n;
    insert into login_events (id, user_id, org_id, service_id, provider, success, address, created_at)
    select gen_random_uuid(), md5('u' || (1 + n))::uuid, %(org)s, md5('s' || n %% %(services)s)::uuid, 'password',
           n < %(services)s * %(successes)s, '203.0.113.9',
           %(now)s - case when n < %(services)s * %(successes)s then interval '9 days' else interval '1 day' end - n * interval '1 sec'
    from generate_series(0, %(services)s * (%(successes)s + %(failures)s) - 1) n;
    insert into login_totals (org_id, service_id, day, provider, shard, total)
    select %(org)s, md5('s' || n)::uuid, (%(now)s::timestamptz at time zone 'UTC')::date - 9, 'password', 0, 500
    from generate_series(0, %(services)s - 1) n"""


@pytest.fixture(scope="module")
def many_services(server: str) -> Iterator[str]:
    values = {"org": ORG, "services": SERVICES, "successes": SUCCESSES, "failures": FAILURES, "now": NOW}
    tables = ("organizations", "users", "end_users", "login_events", "login_totals")
    with filled_database(server, MANY_SERVICES, values, *tables) as conninfo:
        yield conninfo


@pytest.mark.parametrize("mode", PLAN_MODES)
async def test_the_last_sign_ins_of_applications_and_a_user_are_found_by_index(many_services: str, mode: str) -> None:
    async with await connect(many_services, timeout=5) as connection:
        log = Repositories(connection, make_vault(), NoSignals()).sign_in_log
        ids = [UUID(md5(f"s{number}".encode(), usedforsecurity=False).hexdigest()) for number in range(SERVICES)]
        last, reads = await count_reads(connection, mode, partial(log.last_successes, ORG, ids))
        assert set(last) == set(ids)
        assert {(NOW - at).days for at in last.values()} == {9}
        assert reads.rows["login_events"] <= 2 * SERVICES, reads.rows
        found, reads = await count_reads(connection, mode, partial(log.find_user, ORG, Email.parse("77@example.com")))
        assert found == UUID(md5(b"u77", usedforsecurity=False).hexdigest())
        assert sum(reads.rows.values()) <= 10, reads.rows


@pytest.fixture(scope="module")
def services_database(server: str) -> Iterator[str]:
    values = {"org": ORG, "service": SERVICE, "user": UUID(int=3), "attempts": ATTEMPTS, "now": NOW}
    with filled_database(server, AT_SERVICES, values, "users", "login_events") as conninfo:
        yield conninfo


@pytest.mark.parametrize("mode", PLAN_MODES)
@pytest.mark.parametrize("filter_", [{}, {"success": False}])
@pytest.mark.parametrize("org_id", [ORG, None])
async def test_the_attempts_at_an_application_are_not_all_read(
    services_database: str, mode: str, filter_: dict[str, Any], org_id: UUID | None
) -> None:
    async with await connect(services_database, timeout=5) as connection:
        log = Repositories(connection, make_vault(), NoSignals()).sign_in_log
        filter_of_service = SignInFilter(service_id=SERVICE, **filter_)
        page, reads = await count_reads(connection, mode, partial(log.page, org_id, filter_of_service, Page(1, 50)))
    assert (len(page.items), page.total) == (50, MAX_LISTED)
    assert reads.rows["login_events"] <= 2 * MAX_LISTED, reads.rows
