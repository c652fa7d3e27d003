"""The sign-in log of an organization reads little more than its page."""

from collections.abc import Iterator
from functools import partial
from typing import Final
from uuid import UUID

import pytest

from adapters.postgres.engine.connecting import connect
from adapters.postgres.repositories import Repositories
from core.authentication.model.sign_in_log import SignInFilter
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
