"""Statements that delete a service, alone and beside logins."""

from dataclasses import replace
from uuid import UUID

import pytest
import trio

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.applications import services
from core.applications.model import services as model_services
from core.applications.model.services import Service
from core.kernel.causes import SYSTEM
from core.kernel.values import Email
from tests.applications.storage.services import by_id, put, service
from tests.support.builders import add_organization, run_concurrently, run_sql
from tests.support.rows import EVE, NOW, SECOND, account, add, in_another_task, is_locked, until_blocked, within
from tests.support.services import add_plan, enroll_user

# Deletion


async def delete(storage: Postgres, one: Service) -> None:
    """Delete a service as the use case does, under the lock on the organization."""
    async with storage.transaction(by=SYSTEM) as tx:
        assert await tx.organizations.lock(one.org_id)
        await services.remove(tx, one.org_id, one.id, NOW)


async def enroll(storage: Postgres, one: Service, *people: UUID) -> None:
    for user_id in people:
        async with storage.transaction(by=SYSTEM) as tx:
            assert await enroll_user(tx, one.id, user_id, NOW)


DEPENDENT_TABLES = (
    *(
        "plans",
        "subscriptions",
        "api_keys",
        "identities",
        "service_connections",
        "service_users",
        "login_totals",
        "login_events",
    ),
    *(
        "saml_configurations",
        "saml_certificates",
        "saml_name_ids",
        "saml_sessions",
    ),
)


async def fill(pool: Pool, one: Service, user_id: UUID) -> None:
    """Add a service row to every table."""
    plan = await add_plan(pool, one.id)
    values = {"org": one.org_id, "service": one.id, "user": user_id, "plan": plan, "key": one.id.bytes}
    for statement in (
        """insert into subscriptions (id, org_id, service_id, user_id, plan_id, status, current_period_end, created_at, updated_at)
           values (gen_random_uuid(), %(org)s, %(service)s, %(user)s, %(plan)s, 'active', now(), now(), now())""",
        """insert into api_keys (id, org_id, service_id, name, prefix, key_hash, permissions, created_by, created_at)
           values (gen_random_uuid(), %(org)s, %(service)s, 'x', 'x', %(key)s, '{read:users}', %(user)s, now())""",
        """insert into identities (id, user_id, service_id, provider, provider_user_id, linked_at)
           values (gen_random_uuid(), %(user)s, %(service)s, 'codehost', '1', now())""",
        "update service_connections set client_id = 'x', client_secret = 'x', updated_at = now() where service_id = %(service)s",
        """insert into saml_configurations (service_id, org_id, enabled, name_id_format, sign_assertions, sign_response, updated_at)
           values (%(service)s, %(org)s, false, 'x', true, true, now())""",
        """insert into saml_certificates (id, org_id, service_id, certificate, private_key, valid_from, valid_until, created_at)
           values (gen_random_uuid(), %(org)s, %(service)s, 'x', 'x', now(), now(), now())""",
        """insert into saml_name_ids (service_id, user_id, org_id, name_id, created_at)
           values (%(service)s, %(user)s, %(org)s, 'x', now())""",
        """with session as (
             insert into sessions (id, user_id, created_at, expires_at, ends_at)
             values (gen_random_uuid(), %(user)s, now(), now(), now()) returning id)
           insert into saml_sessions (session_id, service_id, org_id, session_index, name_id, name_id_format, created_at)
           select id, %(service)s, %(org)s, 'x', 'x', 'x', now() from session""",
        "insert into login_totals (org_id, service_id, day, provider, shard, total) values (%(org)s, %(service)s, now(), 'password', 0, 1)",
        """insert into login_events (id, user_id, org_id, service_id, provider, success, created_at)
           values (gen_random_uuid(), %(user)s, %(org)s, %(service)s, 'password', true, now())""",
    ):
        async with pool.connection() as connection:
            await connection.execute(statement, values)


async def rows_of(pool: Pool, one: Service) -> dict[str, int]:
    return {table: (await run_sql(pool, f"select count(*) from {table} where service_id = %s", one.id))[0][0] for table in DEPENDENT_TABLES}  # noqa: S608


async def end_users(pool: Pool, org: UUID) -> set[UUID]:
    """Return the organization's end users, and check their total."""
    user_ids = {user_id for (user_id,) in await run_sql(pool, "select user_id from end_users where org_id = %s", org)}
    assert await run_sql(pool, "select total from end_user_totals where org_id = %s", org) == [(len(user_ids),)]
    return user_ids


async def test_deleting_a_service_deletes_its_rows_and_no_others(storage: Postgres, pool: Pool) -> None:
    await add(storage, user := account(), eve := account(EVE))
    org, other_tenant = await add_organization(pool, "acme"), await add_organization(pool, "twin")
    deleted, other, foreign = service(org), service(org, "other"), service(other_tenant)
    await put(storage, deleted, other, foreign)
    await enroll(storage, deleted, user.id, eve.id)
    await enroll(storage, other, eve.id)
    await enroll(storage, foreign, user.id, eve.id)
    for one in (deleted, other, foreign):
        await fill(pool, one, eve.id)
    before = [await rows_of(pool, one) for one in (other, foreign)]
    assert all(all(counts.values()) for counts in before)
    insert_login = "insert into login_events (id, user_id, provider, success, created_at) values (gen_random_uuid(), %s, 'x', true, now())"
    await run_sql(pool, insert_login, user.id)
    await delete(storage, deleted)
    assert await rows_of(pool, deleted) == dict.fromkeys(DEPENDENT_TABLES, 0)
    assert [await rows_of(pool, one) for one in (other, foreign)] == before
    assert {one.id for one in (other, foreign)} == {id_ for (id_,) in await run_sql(pool, "select id from services")}
    # Users of other services are still end users.
    assert await end_users(pool, org) == {eve.id}
    assert await end_users(pool, other_tenant) == {user.id, eve.id}
    assert await run_sql(pool, "select count(*) from users") == [(2,)]
    assert await run_sql(pool, "select count(*) from login_events where service_id is null") == [(1,)]
    assert await run_sql(pool, "select id, deleted_at from deleted_services") == [(deleted.id, NOW)]


async def test_users_are_removed_in_batches(storage: Postgres, pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    people = [account(f"{number}@example.com") for number in range(7)]
    await add(storage, *people)
    org = await add_organization(pool, "acme")
    deleted, other = service(org), service(org, "other")
    await put(storage, deleted, other)
    await enroll(storage, deleted, *(person.id for person in people))
    await enroll(storage, other, people[3].id)
    ids = sorted(person.id for person in people)
    async with storage.transaction(by=SYSTEM) as tx:
        assert await tx.services.lock_users(org, deleted.id, None, 3) == ids[2]
        assert await tx.services.lock_users(org, deleted.id, ids[2], 3) == ids[5]
        assert await tx.services.lock_users(org, deleted.id, ids[5], 3) == ids[6]
        assert await tx.services.lock_users(org, deleted.id, ids[6], 3) is None
    monkeypatch.setattr(model_services, "USER_BATCH", 3)
    await delete(storage, deleted)
    assert await end_users(pool, org) == {people[3].id}
    assert await run_sql(pool, "select service_id, user_id from service_users") == [(other.id, people[3].id)]


async def test_a_deletion_with_another_organization_changes_nothing(storage: Postgres, pool: Pool) -> None:
    user = await add(storage, account())
    org, other_tenant = await add_organization(pool, "acme"), await add_organization(pool, "twin")
    one = await put(storage, service(org))
    await enroll(storage, one, user.id)
    await delete(storage, replace(one, org_id=other_tenant))
    assert await by_id(storage, one) == one
    assert await run_sql(pool, "select user_count from services") == [(1,)]
    assert await end_users(pool, org) == {user.id}
    assert await run_sql(pool, "select count(*) from service_users") == [(1,)]
    assert await run_sql(pool, "select * from deleted_services") == []


async def test_logins_are_purged_in_batches_newest_first(storage: Postgres, pool: Pool) -> None:
    org = await add_organization(pool, "acme")
    one, other = service(org), service(org, "other")
    await put(storage, one, other)
    await add(storage, account())
    login = """
        insert into login_events (id, user_id, org_id, service_id, provider, success, created_at)
        select gen_random_uuid(), id, %s, %s, %s, true, %s from users"""
    for number in range(3):
        for of in (one, other):
            await run_sql(pool, login, org, of.id, str(number), NOW + number * SECOND)
    providers = "select provider from login_events where service_id = %s order by created_at"
    await within(storage, lambda tx: tx.services.purge(one.id, 2))
    assert await run_sql(pool, providers, one.id) == [("0",)]
    await within(storage, lambda tx: tx.services.purge(one.id, 2))
    assert await run_sql(pool, providers, one.id) == []
    assert await run_sql(pool, providers, other.id) == [("0",), ("1",), ("2",)]


# Concurrency


async def test_a_deletion_waits_for_a_login_in_progress_and_removes_its_rows(storage: Postgres, pool: Pool) -> None:
    user = await add(storage, account())
    one = await put(storage, service(await add_organization(pool, "acme")))
    async with trio.open_nursery() as nursery, storage.transaction(by=SYSTEM) as tx:
        assert await tx.accounts.lock(user.id)
        assert await enroll_user(tx, one.id, user.id, NOW)
        nursery.start_soon(delete, storage, one)
        await until_blocked(pool)
    assert await by_id(storage, one) is None
    assert await rows_of(pool, one) == dict.fromkeys(DEPENDENT_TABLES, 0)
    assert await end_users(pool, one.org_id) == set()


async def test_a_deletion_waits_for_a_login_that_enrolls_during_an_update_of_the_service(storage: Postgres, pool: Pool) -> None:
    """The update overwrites the login's lock on the service row (docs/adr/0006)."""
    user = await add(storage, account())
    one = await put(storage, service(await add_organization(pool, "acme")))
    await enroll(storage, one, user.id)  # the first login also updates the row, and so locks it again
    [(reindex,)] = await run_sql(pool, "select 'reindex table ' || reltoastrelid::regclass from pg_class where relname = 'services'")
    update = "update services set redirect_uris = (select array_agg(gen_random_uuid()::text) from generate_series(1, 1000))"
    async with trio.open_nursery() as nursery, storage.transaction(by=SYSTEM) as tx:

        async def enroll_during_update() -> None:
            # The `reindex` lock stops the update after it chose the row's new locks, and before it
            # writes them.
            async with trio.open_nursery() as updating, pool.connection() as connection, connection.transaction():
                await connection.execute(reindex)
                updating.start_soon(run_sql, pool, update)
                await until_blocked(pool)
                assert await enroll_user(tx, one.id, user.id, NOW)

        await in_another_task(enroll_during_update)
        nursery.start_soon(within, storage, lambda other: other.services.delete(one.org_id, one.id, NOW))
        await until_blocked(pool)
    assert await by_id(storage, one) is None


async def test_a_login_that_waits_for_a_deletion_finds_no_service(storage: Postgres, pool: Pool) -> None:
    user = await add(storage, account())
    one = await put(storage, service(await add_organization(pool, "acme")))
    async with storage.transaction(by=SYSTEM) as tx:
        await tx.services.delete(one.org_id, one.id, NOW)
        enrollment = await in_another_task(lambda: within(storage, lambda tx: enroll_user(tx, one.id, user.id, NOW)))
    assert enrollment is False
    assert await run_sql(pool, "select count(*) from service_users") == [(0,)]
    assert await run_sql(pool, "select count(*) from end_users") == [(0,)]


async def test_a_user_who_joins_another_service_during_the_deletion_stays_an_end_user(storage: Postgres, pool: Pool) -> None:
    """When the deletion starts, the user has no other service; when it reaches their row, they have a second service."""
    await add(storage, user := account(), eve := account(EVE))
    org = await add_organization(pool, "acme")
    deleted, other = service(org), service(org, "other")
    await put(storage, deleted, other)
    await enroll(storage, deleted, user.id, eve.id)
    async with trio.open_nursery() as nursery, storage.transaction(by=SYSTEM) as tx:
        assert await enroll_user(tx, other.id, user.id, NOW)
        nursery.start_soon(delete, storage, deleted)
        await until_blocked(pool)
    assert await end_users(pool, org) == {user.id}
    assert await run_sql(pool, "select service_id, user_id from service_users") == [(other.id, user.id)]


async def test_a_user_who_joins_another_service_after_the_deletion_is_a_new_end_user(storage: Postgres, pool: Pool) -> None:
    user = await add(storage, account())
    org = await add_organization(pool, "acme")
    deleted, other = service(org), service(org, "other")
    await put(storage, deleted, other)
    await enroll(storage, deleted, user.id)
    async with trio.open_nursery() as nursery, storage.transaction(by=SYSTEM) as tx:
        await tx.services.delete(org, deleted.id, NOW)
        assert await tx.services.lock_users(org, deleted.id, None, 10) == user.id
        nursery.start_soon(enroll, storage, other, user.id)
        await until_blocked(pool)
        await tx.services.remove_totals(org, deleted.id, await tx.services.remove_users(org, deleted.id, None, user.id))
    assert await end_users(pool, org) == {user.id}
    assert await run_sql(pool, "select service_id, user_count from service_users join services on id = service_id") == [(other.id, 1)]


@pytest.mark.parametrize("first", ["the deletion", "the change"])
async def test_a_deletion_and_an_email_change_lock_rows_in_the_same_order(storage: Postgres, pool: Pool, first: str) -> None:
    """An email change updates two tables from which a deletion removes rows. The second transaction waits, and there is no deadlock."""
    user = await add(storage, account())
    org = await add_organization(pool, "acme")
    deleted, other = service(org), service(org, "other")
    await put(storage, deleted, other)
    await enroll(storage, deleted, user.id)

    async def change() -> None:
        await within(storage, lambda tx: tx.accounts.change_email(user.id, Email("new@example.com"), NOW))

    async with trio.open_nursery() as nursery, storage.transaction(by=SYSTEM) as tx:
        if first == "the change":
            await tx.accounts.change_email(user.id, Email("new@example.com"), NOW)
            nursery.start_soon(delete, storage, deleted)
            await until_blocked(pool)
        else:
            await tx.services.delete(org, deleted.id, NOW)
            await tx.services.lock_users(org, deleted.id, None, 10)
            nursery.start_soon(change)
            await until_blocked(pool)
            await tx.services.remove_totals(org, deleted.id, await tx.services.remove_users(org, deleted.id, None, user.id))
    assert await run_sql(pool, "select email from users") == [("new@example.com",)]
    assert await end_users(pool, org) == set()
    assert await run_sql(pool, "select count(*) from service_users") == [(0,)]


async def test_a_purge_skips_locked_logins(storage: Postgres, pool: Pool) -> None:
    user = await add(storage, account())
    one = await put(storage, service(await add_organization(pool, "acme")))
    await fill(pool, one, user.id)
    async with pool.connection() as connection, connection.transaction():
        await connection.execute("select 1 from login_events for update")
        with trio.fail_after(5):
            await in_another_task(lambda: within(storage, lambda tx: tx.services.purge(one.id, 10)))
    assert (await rows_of(pool, one))["login_events"] == 1


async def test_locking_the_organization_does_not_lock_its_services(storage: Postgres, pool: Pool) -> None:
    """Logins update the service's counters. Logins must not wait for other changes to the organization."""
    one = await put(storage, service(await add_organization(pool, "acme")))
    async with storage.transaction(by=SYSTEM) as tx:
        assert await tx.organizations.lock(one.org_id)
        assert await tx.services.by_slug(one.org_id, "shop")
        assert not await is_locked(pool, "services", "id = %s", one.id)


@pytest.mark.slow
async def test_counters_stay_correct_when_a_service_is_deleted_during_logins(storage: Postgres, pool: Pool) -> None:
    people = [account(f"{number}@example.com") for number in range(19)]
    await add(storage, *people)
    org = await add_organization(pool, "acme")
    deleted, other = service(org), service(org, "other")
    await put(storage, deleted, other)
    await enroll(storage, deleted, *(person.id for person in people[:10]))

    async def act(number: int) -> None:
        if number == 19:
            await delete(storage, deleted)
            return
        async with storage.transaction(by=SYSTEM) as tx:
            assert await tx.accounts.lock(people[number].id)
            # Half of the logins use the other service, and half of these users also use the deleted service.
            await enroll_user(tx, (other if number % 2 else deleted).id, people[number].id, NOW)

    await run_concurrently(20, act)
    remaining_users = {people[number].id for number in range(19) if number % 2}
    service_users = set(await run_sql(pool, "select service_id, user_id from service_users"))
    assert (await end_users(pool, org), service_users) == (remaining_users, {(other.id, user_id) for user_id in remaining_users})
    assert await run_sql(pool, "select id, user_count from services") == [(other.id, len(remaining_users))]
