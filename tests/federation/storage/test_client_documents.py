"""Statements about failed fetches of external clients' documents."""

from dataclasses import replace
from datetime import datetime
from uuid import UUID

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.applications.model.services import DOCUMENT_USABLE_FOR
from core.authentication.model.openid import OpenIdGrant, ResourceGrant
from core.kernel.callers import ServiceContext
from core.kernel.values import digest
from tests.support.builders import run_concurrently, run_sql
from tests.support.rows import ADA, DAY, HOUR, NOW, account, add, begin, within
from tests.support.services import add_api_resource, enroll_user

CLAUDE = "https://claude.ai/oauth/client"


async def become_external(pool: Pool, shop: ServiceContext, fetched_at: datetime) -> None:
    sql = """
        update services set client_uri = %s, service_type = 'spa', client_secret_hash = null, client_authentication = 'none',
            document_fetched_at = %s where id = %s"""
    await run_sql(pool, sql, CLAUDE, fetched_at, shop.id)


async def test_failures_count_from_the_first_one_after_the_latest_document(
    storage: Postgres, pool: Pool, acme: UUID, other_tenant: UUID, shop: ServiceContext
) -> None:
    """Fetches by several processes can end in another order than they began."""
    await become_external(pool, shop, NOW)

    async def since() -> datetime | None:
        [(value,)] = await run_sql(pool, "select document_failing_since from services where id = %s", shop.id)
        return value  # type: ignore[no-any-return]

    async def fail(at: datetime, org: UUID = acme) -> None:
        await within(storage, lambda tx: tx.external_clients.note_failure(org, shop.id, at))

    async def succeed(at: datetime, org: UUID = acme) -> None:
        await within(storage, lambda tx: tx.external_clients.note_success(org, shop.id, at))

    for at, org in ((NOW - HOUR, acme), (NOW, acme), (NOW + HOUR, other_tenant)):
        await fail(at, org)
        assert await since() is None, "a later document is stored, or it is the client of another organization"
    await run_concurrently(8, lambda number: fail(NOW + (1 + number % 2) * HOUR))
    assert await since() in (NOW + HOUR, NOW + 2 * HOUR)
    first = await since()
    await fail(NOW + 3 * HOUR)
    await succeed(NOW + DAY, other_tenant)
    await succeed(NOW)
    assert await since() == first
    await succeed(NOW + 5 * HOUR / 2)
    assert await since() == NOW + 3 * HOUR, "a later failure is the first one again"
    await succeed(NOW + 3 * HOUR)
    assert await since() is None
    orders = await add_api_resource(pool, acme)
    async with storage.reading() as read:
        stored = await read.services.by_id(acme, shop.id)
    assert stored is not None
    for failed_at, fetched_at, expected in ((5 * HOUR, 4 * HOUR, NOW + 5 * HOUR), (5 * HOUR, 5 * HOUR, None)):
        await fail(NOW + failed_at)
        newer = replace(stored, document_fetched_at=NOW + fetched_at)
        await within(storage, lambda tx: tx.external_clients.save(newer, orders, NOW))  # noqa: B023
        assert await since() == expected, "only a later document ends it"


async def test_a_session_is_live_until_its_document_is_gone(storage: Postgres, pool: Pool, acme: UUID, shop: ServiceContext) -> None:
    await become_external(pool, shop, NOW - 2 * DOCUMENT_USABLE_FOR)
    ada, orders = (await add(storage, account(ADA))).id, await add_api_resource(pool, acme)
    await run_sql(pool, "update api_resources set host = null")
    await run_sql(pool, "insert into api_resource_clients values (%s, %s, %s, '{}', %s)", acme, orders, shop.id, NOW - HOUR)
    await within(storage, lambda tx: enroll_user(tx, shop.id, ada, NOW))
    await within(storage, lambda tx: tx.consents.add(acme, shop.id, ada, (), NOW))
    await run_sql(pool, "update consents set client_authentication = 'none'")
    grant = OpenIdGrant((), resource="https://api.example.com/orders", api=ResourceGrant(orders, ("orders:read",), 600))
    await begin(storage, ada, "token", service=shop, openid=grant)

    async def is_live(at: datetime) -> bool:
        async with storage.reading() as read:
            return await read.refresh_tokens.introspect(shop.id, None, digest("token"), at) is not None

    assert await is_live(NOW + HOUR), "no fetch has failed"
    await within(storage, lambda tx: tx.external_clients.note_failure(acme, shop.id, NOW + HOUR - DOCUMENT_USABLE_FOR))
    for latest, expected in ((NOW, True), (NOW + HOUR, False)):
        await within(storage, lambda tx: tx.external_clients.note_failure(acme, shop.id, latest))  # noqa: B023
        assert await is_live(NOW + 2 * HOUR) is expected, "one failure alone ends nothing"
    async with storage.autocommit() as statements:
        assert await statements.refresh_tokens.rotate(digest("token"), digest("next"), NOW + HOUR, NOW + DAY) is None
    await within(storage, lambda tx: tx.external_clients.note_success(acme, shop.id, NOW + HOUR))
    async with storage.autocommit() as statements:
        assert await statements.refresh_tokens.rotate(digest("token"), digest("next"), NOW + HOUR, NOW + DAY) is not None
