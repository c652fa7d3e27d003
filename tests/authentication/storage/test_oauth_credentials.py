"""Every statement on service credentials: fields, keys and secret encryption."""

from uuid import UUID, uuid4

import pytest

from adapters.postgres.authentication.oauth_credentials import name_of, secret_context
from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.authentication.model.identities import ServiceOAuthCredentials
from core.kernel.connections import PLATFORM_CONNECTIONS, ConnectionSlug
from ports.crypto import SealBroken
from tests.support.builders import add_organization, make_vault, run_sql
from tests.support.rows import HOUR, NOW, within
from tests.support.services import add_service

FIRST, SECOND, _ = PLATFORM_CONNECTIONS


async def put(storage: Postgres, org: UUID, service: UUID, credentials: ServiceOAuthCredentials, secret: str = "secret") -> None:
    await within(storage, lambda tx: tx.oauth_credentials.put(org, service, credentials, secret))


async def of(storage: Postgres, org: UUID, service: UUID, provider: ConnectionSlug = FIRST) -> ServiceOAuthCredentials | None:
    async with storage.reading() as read:
        return (await read.oauth_credentials.list_of_service(org, service)).get(provider)


async def test_credentials_are_found_by_organization_service_and_provider(storage: Postgres, pool: Pool) -> None:
    acme, other_tenant = [await add_organization(pool, slug) for slug in ("acme", "twin")]
    shop, desk, foreign_shop = await add_service(pool, acme), await add_service(pool, acme, "desk"), await add_service(pool, other_tenant)
    shop_credentials = ServiceOAuthCredentials(FIRST, "shop's", NOW)
    await put(storage, acme, shop, shop_credentials)
    await put(storage, acme, shop, second := ServiceOAuthCredentials(SECOND, "shop's second", NOW - HOUR))
    await put(storage, other_tenant, foreign_shop, other := ServiceOAuthCredentials(FIRST, "twin's", NOW))
    assert [await of(storage, acme, shop, provider) for provider in PLATFORM_CONNECTIONS] == [shop_credentials, second, None]
    assert await of(storage, other_tenant, foreign_shop) == other
    for org, service in ((other_tenant, shop), (acme, foreign_shop), (acme, desk), (uuid4(), shop), (acme, uuid4())):
        assert await of(storage, org, service) is None
        assert await within(storage, lambda tx, org=org, service=service: tx.oauth_credentials.remove(org, service, FIRST)) is False  # type: ignore[misc]
    assert await within(storage, lambda tx: tx.oauth_credentials.remove(acme, shop, FIRST)) is True
    assert [await of(storage, acme, shop, provider) for provider in PLATFORM_CONNECTIONS] == [None, second, None]
    assert await of(storage, other_tenant, foreign_shop) == other


async def test_new_credentials_replace_the_old_ones(storage: Postgres, pool: Pool) -> None:
    acme = await add_organization(pool, "acme")
    shop = await add_service(pool, acme)
    await put(storage, acme, shop, ServiceOAuthCredentials(FIRST, "old", NOW - HOUR), "old secret")
    await put(storage, acme, shop, new := ServiceOAuthCredentials(FIRST, "new", NOW), "new secret")
    assert await of(storage, acme, shop) == new
    [(sealed,)] = await run_sql(pool, "select client_secret from service_connections")
    assert make_vault().open(sealed, secret_context(name_of(shop, FIRST))) == b"new secret"


async def test_a_secret_is_encrypted_for_its_service_and_provider(storage: Postgres, pool: Pool) -> None:
    acme = await add_organization(pool, "acme")
    shop, desk = await add_service(pool, acme), await add_service(pool, acme, "desk")
    await put(storage, acme, shop, ServiceOAuthCredentials(FIRST, "id", NOW), "a secret of a service")
    [(sealed,)] = await run_sql(pool, "select client_secret from service_connections")
    assert b"secret" not in sealed
    for row in (name_of(shop, SECOND), name_of(desk, FIRST)):
        with pytest.raises(SealBroken):
            make_vault().open(sealed, secret_context(row))
