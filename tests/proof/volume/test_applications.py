"""Statements about logins and end users read few rows in large tables."""

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any, Final
from uuid import UUID, uuid4

import pytest

from adapters.postgres.applications.analytics import LATEST_FIRST_PAGE, LATEST_NEXT_PAGE
from adapters.postgres.authentication.sign_in_log import LAST_OF_SERVICE
from adapters.postgres.engine.connecting import connect
from adapters.postgres.engine.pool import Pool
from adapters.postgres.repositories import Repositories
from adapters.postgres.storage import Postgres
from core.kernel.causes import SYSTEM
from core.kernel.roles import MEMBER
from core.kernel.values import Page
from ports.signals import NoSignals
from tests.proof.volume.plans import PLAN_MODES, count_reads, filled_database, plan_nodes, rows_of, without_foreign_keys
from tests.support.builders import add_member, add_organization, make_vault, run_sql
from tests.support.rows import NOW, SECOND, account, add, session
from tests.support.services import add_service, service_context

pytestmark = pytest.mark.slow

FIRST = Page(1, 50)


@pytest.mark.parametrize("mode", PLAN_MODES)
async def test_logins_of_a_deleted_service_are_not_scanned(storage: Postgres, pool: Pool, mode: str) -> None:
    """Until the housekeeper removes them, they may be newer than all other logins."""
    user = await add(storage, account())
    shop = await service_context(pool, await add_service(pool, await add_organization(pool, "acme")))
    async with storage.transaction(by=SYSTEM) as tx:
        for number in range(20):
            await tx.logins.record_success(session(user.id, service=shop, created_at=NOW - number * SECOND), "password")
    await run_sql(
        pool,
        """
        insert into login_events (id, user_id, org_id, service_id, provider, success, created_at)
        select gen_random_uuid(), %s, %s, %s, 'password', true, now() from generate_series(1, 2000)""",
        *(user.id, shop.org_id, uuid4()),
    )
    await run_sql(pool, "analyze login_events")
    async with storage.reading() as read:
        latest = await read.analytics.recent(shop.org_id, None, 5)
    assert [one.created_at for one in latest] == [NOW - number * SECOND for number in range(5)]
    last = {"created_at": latest[-1].created_at, "id": latest[-1].id}
    for statement in (LATEST_FIRST_PAGE, LATEST_NEXT_PAGE):
        nodes = await plan_nodes(pool, statement, {"org_id": shop.org_id, "limit": 5, **last}, mode)
        assert sum(rows_of(node) for node in nodes if node.get("Relation Name") == "login_events") <= 20


@pytest.mark.parametrize("mode", PLAN_MODES)
async def test_the_activity_of_an_application_is_found_among_many_sign_ins(storage: Postgres, pool: Pool, mode: str) -> None:
    """For applications without failures or without recent sign-ins, beside a busy application in the same organization."""
    user = await add(storage, account())
    org = await add_organization(pool, "acme")
    busy, quiet = [await add_service(pool, org, slug) for slug in ("busy", "quiet")]
    insert = """
        insert into login_events (id, user_id, org_id, service_id, provider, success, created_at)
        select gen_random_uuid(), %s, %s, %s, 'password', true, now() - n * interval '1 second' from generate_series(%s::int, %s::int) n"""
    await run_sql(pool, insert, user.id, org, busy, 1, 20_000)
    await run_sql(pool, insert, user.id, org, quiet, 30_000, 30_010)
    await run_sql(pool, "analyze login_events")
    for service in (busy, quiet, uuid4()):
        nodes = await plan_nodes(pool, LAST_OF_SERVICE, {"org_id": org, "service_id": service}, mode)
        assert sum(rows_of(node) for node in nodes if node.get("Relation Name") == "login_events") <= 5


# Costs in a large organization

ORG, TWIN, SHOP, TINY, OTHER = (UUID(int=number) for number in range(1, 6))
SIZE: Final = 6000
# Nine more organizations have three times as many users together. With so few organizations, a
# planner that relies on averages expects a page to be a large part of all accounts.
INSERTS: Final = """
    insert into users (id, email, origin, created_at, updated_at)
    select md5('u' || n)::uuid, 'person-' || n || '@example.com', 'platform', now(), now() from generate_series(1, 4 * %(size)s) n;
    insert into organizations (id, slug, name, status, created_at, updated_at) values
        (%(org)s, 'acme', 'Acme', 'active', now(), now()), (%(twin)s, 'twin', 'Twin', 'active', now(), now());
    insert into services (id, org_id, slug, name, service_type, client_id, redirect_uris, created_at, updated_at)
    select id, org_id, slug, slug, 'mobile', gen_random_uuid(), '{}', now(), now()
    from (values (%(shop)s, %(org)s, 'shop'), (%(tiny)s, %(org)s, 'tiny'), (%(other)s, %(twin)s, 'shop')) v (id, org_id, slug);
    insert into service_users (service_id, user_id, org_id, email, deactivated, created_at)
    select service_id, md5('u' || n)::uuid, org_id, 'person-' || n || '@example.com', false, now() - n * interval '1 s' from (
        select n, case when n <= %(size)s then %(shop)s when mod(n, 9) = 0 then %(other)s else md5('s' || mod(n, 9))::uuid end,
               case when n <= %(size)s then %(org)s when mod(n, 9) = 0 then %(twin)s else md5('o' || mod(n, 9))::uuid end
        from generate_series(1, 4 * %(size)s) n
        union all select n * 7, %(tiny)s, %(org)s from generate_series(1, 60) n) r (n, service_id, org_id);
    insert into end_users (org_id, user_id, email, deactivated, created_at)
    select org_id, user_id, email, deactivated, min(created_at) from service_users group by 1, 2, 3, 4;
    insert into end_user_blocks (org_id, user_id, email, since)
    select org_id, user_id, email, created_at from end_users e where org_id <> %(org)s or exists (
        select 1 from service_users s where s.org_id = e.org_id and s.user_id = e.user_id and s.service_id = %(tiny)s);
    insert into end_user_totals (org_id, total) select org_id, count(*) from end_users group by 1;
    update services v set user_count = (select count(*) from service_users r where r.service_id = v.id)"""


@pytest.fixture(scope="module")
def large_database(server: str) -> Iterator[str]:
    """A filled database for both plan modes."""
    names = {"size": SIZE, "org": ORG, "twin": TWIN, "shop": SHOP, "tiny": TINY, "other": OTHER}
    tables = ("users", "services", "service_users", "end_users", "end_user_blocks", "end_user_totals")
    with filled_database(server, INSERTS, names, *tables) as conninfo:
        yield conninfo


# Every filter with how many matches it has
FILTERS: list[tuple[dict[str, Any], int]] = [
    ({}, SIZE),
    ({"service_id": SHOP}, SIZE),
    ({"service_id": TINY}, 60),
    ({"service_id": OTHER}, 0),
    ({"search": "person"}, SIZE),
    ({"search": "person-77@"}, 1),
    ({"search": "unknown"}, 0),
    ({"search": "person", "service_id": SHOP}, SIZE),
    ({"search": "person-77@", "service_id": SHOP}, 1),
    ({"search": "person-77@", "service_id": TINY}, 1),
    ({"search": "person", "service_id": TINY}, 60),
    ({"search": "person", "service_id": OTHER}, 0),
    ({"blocked": True}, 60),
    ({"blocked": True, "service_id": SHOP}, 60),
    ({"blocked": True, "service_id": OTHER}, 0),
]


@pytest.mark.parametrize("mode", PLAN_MODES)
async def test_a_page_of_a_large_organization_reads_few_other_rows(large_database: str, mode: str) -> None:
    async with await connect(large_database, timeout=5) as connection:
        end_users = Repositories(connection, make_vault(), NoSignals()).end_users
        for filters, total in FILTERS:
            for page in (FIRST, Page(max(1, total // 50), 50)):
                listed, reads = await count_reads(connection, mode, partial(end_users.page, ORG, page, **filters))
                assert (listed.total, len(listed.items)) == (total, min(total, 50)), filters
                assert not reads.scans.keys() & {"users", "service_users", "end_users"}, filters
                # Per user: one account, two rows in service_users, and the three services that are
                # searched. With `blocked`, also all the organization's blocks, and a row in
                # end_users.
                more = total + 50 if "blocked" in filters else 0
                assert reads.rows.total() <= 50 * (1 + 2 + 3) + 20 + more, filters


@pytest.mark.parametrize("mode", PLAN_MODES)
async def test_the_preview_of_a_sign_in_policy_reads_the_users_of_one_batch(large_database: str, mode: str) -> None:
    async with await connect(large_database, timeout=5) as connection:
        policies = Repositories(connection, make_vault(), NoSignals()).sign_in_policies
        for service, last, size in ((None, None, 500), (None, UUID(int=2**127), 500), (SHOP, None, 500), (TINY, None, 60)):
            people, reads = await count_reads(connection, mode, partial(policies.people, ORG, service, last, 500, are_members=False))
            assert len(people) == size, (service, last, len(people))
            assert not reads.scans.keys() & {"users", "service_users", "end_users", "memberships", "identities", "sessions"}, (
                service,
                last,
            )
            # Per user: the account, and a row in end_users or service_users.
            assert reads.rows.total() <= 2 * 500 + 300, (service, last, reads)


@pytest.mark.parametrize("mode", PLAN_MODES)
async def test_external_clients_cost_the_lists_of_an_organization_nothing(storage: Postgres, pool: Pool, conninfo: str, mode: str) -> None:
    """A user can store many external clients. The applications' lists and policies leave them out, also for members."""
    user, org = await add(storage, account()), await add_organization(pool, "acme")
    await add_member(pool, org, user.id, MEMBER, confirmed=True)
    await add_service(pool, org)
    await run_sql(pool, "insert into sign_in_policies (id, org_id, rules, changed_at) values (gen_random_uuid(), %s, '{}', now())", org)
    async with without_foreign_keys(pool) as connection:
        await connection.execute(EXTERNAL, {"org": org})
    await run_sql(pool, "analyze services")
    await run_sql(pool, "analyze login_events")
    async with await connect(conninfo, timeout=5) as own:
        here = Repositories(own, make_vault(), NoSignals())
        acts: dict[str, Callable[[], Awaitable[Any]]] = {
            "own": lambda: here.own_applications.of_user(user.id, 50, NOW),
            "policies": lambda: here.sign_in_policies.anywhere(user.id, None),
            "policies of applications": lambda: here.sign_in_policies.of_applications(org),
            "ways": lambda: here.sign_in_policies.application_ways(org),
            "figures": lambda: here.overview.figures(org, NOW),
            "recent": lambda: here.analytics.recent(org, None, 5),
            "count": lambda: here.services.count(org),
        }
        for name, act in acts.items():
            _, reads = await count_reads(own, mode, act)
            assert reads.rows["services"] <= 3, (name, reads)
            assert reads.rows["login_events"] <= 5, (name, reads)


EXTERNAL: Final = """
    with added as (
        insert into services (id, org_id, slug, name, service_type, client_id, redirect_uris, created_at, updated_at, client_uri,
                              document_fetched_at)
        select gen_random_uuid(), %(org)s, 'registered-' || n, 'Assistant', 'spa', gen_random_uuid(), '{}', now(), now(),
               'gatehouse_registered_' || n, now()
        from generate_series(1, 10000) n returning id)
    insert into login_events (id, user_id, org_id, service_id, external_client, provider, success, created_at)
    select gen_random_uuid(), gen_random_uuid(), %(org)s, id, 'client.example', 'password', true, now() from added"""
