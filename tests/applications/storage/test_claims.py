"""The statements about claims documents."""

from typing import Final
from uuid import UUID

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.applications.model.services import StoredClaims
from tests.support.builders import run_concurrently, run_sql
from tests.support.rows import DAY, NOW, within
from tests.support.services import add_service

DOCUMENT: Final = {"fixed": {"tenant": "acme"}}


async def find(storage: Postgres, org: UUID, service: UUID) -> StoredClaims | None:
    async with storage.reading() as read:
        return await read.service_claims.find(org, service)


async def test_a_document_is_stored_replaced_and_removed(pool: Pool, storage: Postgres, acme: UUID) -> None:
    service, other = await add_service(pool, acme), await add_service(pool, acme, "other")
    assert await find(storage, acme, service) is None
    first = await within(storage, lambda tx: tx.service_claims.put(acme, service, DOCUMENT, ["attribute"], NOW))
    assert await find(storage, acme, service) == StoredClaims(DOCUMENT, first, NOW)
    second = await within(storage, lambda tx: tx.service_claims.put(acme, service, {}, [], NOW + DAY))
    assert second > first
    assert await find(storage, acme, service) == StoredClaims({}, second, NOW + DAY)
    assert await find(storage, acme, other) is None
    assert await run_sql(pool, "select claims_version from services where id = %s", other) == [(None,)]
    assert await within(storage, lambda tx: tx.service_claims.remove(acme, service))
    assert not await within(storage, lambda tx: tx.service_claims.remove(acme, service))
    assert await run_sql(pool, "select claims_version from services where id = %s", service) == [(None,)]
    third = await within(storage, lambda tx: tx.service_claims.put(acme, service, {}, [], NOW))
    assert third > second, "a version never comes back"


async def test_no_statement_reaches_another_organization(pool: Pool, storage: Postgres, acme: UUID) -> None:
    service = await add_service(pool, acme)
    stranger = UUID(int=7)
    version = await within(storage, lambda tx: tx.service_claims.put(acme, service, DOCUMENT, [], NOW))
    assert await find(storage, stranger, service) is None
    assert not await within(storage, lambda tx: tx.service_claims.remove(stranger, service))
    assert await find(storage, acme, service) == StoredClaims(DOCUMENT, version, NOW)


async def test_a_source_in_use_is_found_in_claims_and_in_saml_attributes(pool: Pool, storage: Postgres, acme: UUID) -> None:
    service = await add_service(pool, acme)
    await add_service(pool, acme, "other")

    async def user_of(source: str, org: UUID = acme) -> str | None:
        async with storage.reading() as read:
            return await read.service_claims.service_with_source(org, source)

    [(name,)] = await run_sql(pool, "select name from services where id = %s", service)
    document = {"values": {"a.b": {"sources": ["name", "attribute:team"]}}}
    await within(storage, lambda tx: tx.service_claims.put(acme, service, document, ["attribute"], NOW))
    assert await user_of("attribute:team") == name
    assert await user_of("attribute:tea") is None
    assert await user_of("attribute:team", UUID(int=7)) is None
    await within(storage, lambda tx: tx.service_claims.remove(acme, service))
    assert await user_of("attribute:team") is None
    insert = """
        insert into saml_configurations
            (service_id, org_id, enabled, name_id_format, attribute_mapping, sign_assertions, sign_response, updated_at)
        values (%s, %s, false, 'x', '{"attribute:team": "team"}', true, true, now())"""
    await run_sql(pool, insert, service, acme)
    assert await user_of("attribute:team") == name


async def test_the_document_ends_with_its_service(pool: Pool, storage: Postgres, acme: UUID) -> None:
    service = await add_service(pool, acme)
    await within(storage, lambda tx: tx.service_claims.put(acme, service, DOCUMENT, [], NOW))
    await run_sql(pool, "delete from services where id = %s", service)
    assert await run_sql(pool, "select count(*) from service_claims") == [(0,)]


async def test_each_of_several_writers_gets_a_version_of_its_own(pool: Pool, storage: Postgres, acme: UUID) -> None:
    service = await add_service(pool, acme)

    async def put(_: int) -> int:
        return await within(storage, lambda tx: tx.service_claims.put(acme, service, DOCUMENT, [], NOW))

    versions = await run_concurrently(20, put)
    assert len({*versions}) == 20
    found = await find(storage, acme, service)
    assert found is not None
    assert found.version in versions
