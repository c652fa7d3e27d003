"""The sign-in log of an organization reads little more than its page."""

from collections.abc import Iterator
from functools import partial
from typing import Any, Final
from uuid import UUID

import pytest

from adapters.postgres.engine.connecting import connect
from adapters.postgres.repositories import Repositories
from core.authentication.model.sign_in_log import MAX_LISTED, SignInFilter
from core.kernel.values import Page
from ports.signals import NoSignals
from tests.proof.volume.plans import PLAN_MODES, count_reads, filled_database
from tests.support.builders import make_vault
from tests.support.rows import NOW

pytestmark = pytest.mark.slow

ORG = UUID(int=1)
MEMBERS, EACH = 300, 150
# The sign-ins of 300 members to the platform, in turns.
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
# An application with many attempts, among many with few: a generic plan expects few of each.
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
    """Organizations with few members read those of each member, and others those of the whole platform first."""
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
    # The newest one of each member, and the batch a few times
    assert reads.rows["login_events"] <= MEMBERS + 4 * size, reads.rows


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
