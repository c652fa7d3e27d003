"""The statements about pushed authorization requests: their client, their times, and single use (RFC 9126)."""

from typing import Final
from uuid import UUID, uuid4

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.federation.oauth.model.authorization import StoredRequest
from core.kernel.callers import ServiceContext
from core.kernel.values import digest
from tests.support.builders import run_concurrently, run_sql
from tests.support.rows import MICROSECOND, NOW, SECOND
from tests.support.services import add_service, service_context

MINUTE: Final = 60 * SECOND
HASH: Final = digest("request")
PHONE, LAPTOP = digest("phone"), digest("laptop")


async def push(storage: Postgres, service: ServiceContext | None) -> bool:
    async with storage.autocommit() as statements:
        return await statements.pushed_requests.add(StoredRequest(HASH, service, "state=a&scope=b+c", NOW, NOW + MINUTE))


async def load(storage: Postgres, client_id: UUID | None, after: object = None) -> str | None:
    async with storage.reading() as read:
        return await read.pushed_requests.load(HASH, client_id, NOW if after is None else NOW + after)  # type: ignore[operator]


async def use(storage: Postgres, after: object = MICROSECOND) -> bool:
    async with storage.autocommit() as statements:
        return await statements.pushed_requests.use(HASH, NOW + after)  # type: ignore[operator]


async def client(pool: Pool, org: UUID, slug: str = "shop") -> ServiceContext:
    return await service_context(pool, await add_service(pool, org, slug))


async def test_a_request_is_found_by_its_own_client_until_it_expires(storage: Postgres, pool: Pool, acme: UUID, other_tenant: UUID) -> None:
    shop, twin = await client(pool, acme), await client(pool, other_tenant)
    assert await push(storage, shop)
    assert await load(storage, shop.client_id) == "state=a&scope=b+c"
    for other in (twin.client_id, uuid4(), None, shop.id):
        assert await load(storage, other) is None
    assert await load(storage, shop.client_id, MINUTE - MICROSECOND) is not None
    assert await load(storage, shop.client_id, MINUTE) is None
    assert not await use(storage, MINUTE)


async def test_the_platforms_frontend_pushes_requests_of_its_own(storage: Postgres, pool: Pool, acme: UUID) -> None:
    shop = await client(pool, acme)
    assert await push(storage, None)
    assert await load(storage, None) is not None
    assert await load(storage, shop.client_id) is None


async def test_a_deleted_client_pushes_nothing(storage: Postgres, pool: Pool, acme: UUID) -> None:
    shop = await client(pool, acme)
    await run_sql(pool, "delete from services where id = %s", shop.id)
    assert not await push(storage, shop)


async def test_one_of_twenty_uses_succeeds(storage: Postgres, pool: Pool, acme: UUID) -> None:
    shop = await client(pool, acme)
    await push(storage, shop)
    assert sum(await run_concurrently(20, lambda _: use(storage))) == 1
    assert await load(storage, shop.client_id) is None
    assert await run_sql(pool, "select used_at from pushed_requests") == [(NOW + MICROSECOND,)]
