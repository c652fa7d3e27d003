"""Figures for charts: an hour is counted without reading older sign-ins, and charts read no sign-ins."""

from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from typing import Final
from uuid import UUID

import pytest

from adapters.postgres.engine.connecting import connect
from adapters.postgres.repositories import Repositories
from core.applications.model.figures import FigureRange, TrafficKind, period_of, start_of_hour, weeks_of
from ports.signals import NoSignals
from tests.proof.volume.plans import PLAN_MODES, count_reads, filled_database
from tests.support.builders import make_vault
from tests.support.rows import NOW

pytestmark = pytest.mark.slow

ORG = UUID(int=1)
SIZE: Final = 20_000
DAYS: Final = 90
# Sign-ins to ten applications in two organizations, over 90 days. Every tenth sign-in is by a member at the platform,
# and every ninth sign-in failed. A user signs in five times.
INSERTS: Final = """
    insert into organizations (id, slug, name, status, approved_at, member_count, created_at, updated_at)
    select id, slug, slug, 'active', %(now)s - interval '1 year', 0, %(now)s, %(now)s
    from (values (%(org)s, 'acme'), (md5('other')::uuid, 'other')) o (id, slug);
    insert into services (id, org_id, slug, name, service_type, client_id, redirect_uris, created_at, updated_at)
    select md5('s' || n)::uuid, case when n %% 2 = 0 then %(org)s else md5('other')::uuid end, 's' || n, 's' || n, 'mobile',
           gen_random_uuid(), '{}', %(now)s, %(now)s
    from generate_series(0, 9) n;
    insert into users (id, email, origin, created_at, updated_at)
    select md5('u' || n)::uuid, n || '@example.com', 'platform', %(now)s - interval '1 year', %(now)s
    from generate_series(0, %(size)s / 5) n;
    insert into memberships (id, org_id, user_id, email, role, created_at, confirmed_at)
    select gen_random_uuid(), %(org)s, id, email, 'member', created_at, created_at from users;
    insert into service_users (service_id, user_id, org_id, email, deactivated, created_at, first_login_at)
    select v.id, u.id, v.org_id, u.email, false, %(now)s - interval '1 year', %(now)s - interval '1 year'
    from users u join services v on v.slug = 's' || abs(hashtext(u.email)) %% 10;
    insert into login_events (id, user_id, org_id, service_id, provider, success, reason, address, created_at)
    select md5('l' || n)::uuid, u.id, v.org_id, v.id, (array['password', 'email', 'websuite'])[1 + n %% 3], n %% 9 > 0,
           case when n %% 9 = 0 then 'credentials' end, '203.0.113.9', %(now)s - n * interval '90 days' / %(size)s
    from generate_series(1, %(size)s) n
    join users u on u.id = md5('u' || n::bigint * 7919 %% (%(size)s / 5))::uuid
    left join services v on v.slug = 's' || n %% 11 and n %% 11 < 10"""
TABLES: Final = ("organizations", "services", "users", "memberships", "service_users", "login_events")


@pytest.fixture(scope="module")
def large_database(server: str) -> Iterator[str]:
    with filled_database(server, INSERTS, {"org": ORG, "size": SIZE, "now": NOW}, *TABLES) as conninfo:
        yield conninfo


@pytest.mark.parametrize("mode", PLAN_MODES)
async def test_counting_an_hour_reads_its_sign_ins_and_some_of_their_users(large_database: str, mode: str) -> None:
    hour = start_of_hour(NOW - timedelta(days=10))
    of_hour = SIZE // (DAYS * 24)
    async with await connect(large_database, timeout=5) as connection:
        counting = Repositories(connection, make_vault(), NoSignals()).figure_counting
        _, reads = await count_reads(connection, mode, partial(counting.count_hour, hour))
    assert "login_events" not in reads.scans
    # The hour's rows for both tables, and per user the week's rows: about four, for two organizations and the platform, for the day and
    # the week.
    assert reads.rows["login_events"] <= of_hour * (2 + 4 * 3 * 2) * 2, reads.rows
    assert reads.rows["memberships"] <= of_hour * 4, reads.rows
    assert reads.rows["service_users"] <= of_hour * 8, reads.rows


@pytest.mark.parametrize("mode", PLAN_MODES)
async def test_the_next_hour_is_found_by_the_index_of_the_time(large_database: str, mode: str) -> None:
    async with await connect(large_database, timeout=5) as connection:
        counting = Repositories(connection, make_vault(), NoSignals()).figure_counting
        next_hour = partial(counting.next_hour, NOW - timedelta(days=30), NOW)
        hour, reads = await count_reads(connection, mode, next_hour)
    assert hour == start_of_hour(NOW - timedelta(days=30))
    assert reads.rows["login_events"] <= 2, reads.rows
    assert "login_events" not in reads.scans


@pytest.mark.parametrize("mode", PLAN_MODES)
async def test_charts_read_no_sign_ins(large_database: str, mode: str) -> None:
    async with await connect(large_database, timeout=5) as connection:
        repositories = Repositories(connection, make_vault(), NoSignals())
        period = period_of(FigureRange.QUARTER, NOW)
        for read in (
            partial(repositories.figures.by_result, ORG, period),
            partial(repositories.figures.by_method, None, period),
            partial(repositories.figures.by_application, ORG, period, 5),
            partial(repositories.figures.users, ORG, period),
            partial(repositories.figures.weekly_users, ORG, weeks_of(period, NOW)),
            partial(repositories.figures.populations, ORG, period.first.date()),
            partial(repositories.figures.traffic, ORG, TrafficKind.WEBHOOK, period),
        ):
            _, reads = await count_reads(connection, mode, read)
            assert reads.rows["login_events"] == 0
            assert reads.scans.keys() <= {"services"}, reads.scans
