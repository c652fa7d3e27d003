"""Every statement on platform connections: fields, conditions, and secret encryption."""

from dataclasses import replace
from typing import Final
from uuid import UUID

import pytest

from adapters.postgres.authentication.oauth_credentials import connection_context
from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.authentication.model.identities import ServiceOAuthCredentials
from core.kernel.connections import (
    CODEHOST,
    OFFICESUITE,
    PLATFORM_CONNECTIONS,
    WEBSUITE,
    ConnectionSettings,
    ConnectionSlug,
    PlatformCredentials,
    ProviderClient,
    platform_connection,
)
from tests.support.builders import make_vault, run_sql
from tests.support.identities import at_nowhere
from tests.support.rows import NOW, within
from tests.support.services import add_service

SETTINGS: Final = ConnectionSettings(
    client_id="id",
    authorize_url="https://websuite.example/authorize?hd=x",
    token_url="https://websuite.example/token",
    userinfo_url="https://websuite.example/user",
    scopes=("calendar", "files"),
    emails_url="https://websuite.example/emails",
    issuer="https://websuite.example",
    jwks_url="https://websuite.example/keys",
    verifies_emails=False,
)
FILLED: Final = PlatformCredentials(platform_connection(WEBSUITE, SETTINGS), ProviderClient("id", "the platform's secret"))


async def save(storage: Postgres, slug: ConnectionSlug, credentials: PlatformCredentials | None) -> None:
    await within(storage, lambda tx: tx.oauth_credentials.save_connection(slug, credentials, NOW))


async def find(storage: Postgres, slug: ConnectionSlug, org: UUID | None = None, service: UUID | None = None) -> PlatformCredentials | None:
    async with storage.reading() as read:
        return await read.oauth_credentials.load(slug, org, service)


async def listed(storage: Postgres) -> list[ConnectionSlug]:
    async with storage.reading() as read:
        return [each.slug for each in await read.oauth_credentials.list_connections()]


async def test_all_fields_are_stored_and_a_connection_without_settings_is_unknown(storage: Postgres, pool: Pool) -> None:
    assert (await listed(storage), await find(storage, WEBSUITE)) == ([], None)
    await save(storage, WEBSUITE, FILLED)
    await save(storage, CODEHOST, without := PlatformCredentials(at_nowhere(CODEHOST).connection, None))
    assert [await find(storage, slug) for slug in (CODEHOST, WEBSUITE, OFFICESUITE)] == [without, FILLED, None]
    assert await listed(storage) == [CODEHOST, WEBSUITE]
    await run_sql(pool, """update connections set settings = settings || '{"of_another_release": 1}' where settings is not null""")
    assert await find(storage, WEBSUITE) == FILLED
    await save(storage, WEBSUITE, None)
    assert (await listed(storage), await find(storage, WEBSUITE)) == ([CODEHOST], None)
    assert await run_sql(pool, "select client_secret, client_secret_set_at from connections where slug = 'websuite'") == [(None, None)]


async def test_the_secret_is_encrypted_for_its_connection(storage: Postgres, pool: Pool) -> None:
    await save(storage, WEBSUITE, FILLED)
    [(row, sealed, set_at)] = await run_sql(
        pool, "select t::text, client_secret, client_secret_set_at from connections t where settings is not null"
    )
    assert "secret" not in row.replace("client_secret", "")
    assert make_vault().open(sealed, connection_context(PLATFORM_CONNECTIONS[WEBSUITE][0])) == b"the platform's secret"
    assert set_at == NOW


async def test_the_client_of_a_service_counts_for_this_service_alone(storage: Postgres, pool: Pool, acme: UUID, other_tenant: UUID) -> None:
    await save(storage, WEBSUITE, FILLED)
    await save(storage, CODEHOST, at_nowhere(CODEHOST))
    shop, desk = await add_service(pool, acme), await add_service(pool, acme, "desk")
    own = ServiceOAuthCredentials(WEBSUITE, "of the shop", NOW)
    await within(storage, lambda tx: tx.oauth_credentials.put(acme, shop, own, "its secret"))
    assert await find(storage, WEBSUITE, acme, shop) == replace(FILLED, client=ProviderClient("of the shop", "its secret"))
    for org, service in ((None, None), (acme, desk), (other_tenant, shop)):
        assert await find(storage, WEBSUITE, org, service) == FILLED, (org, service)
    assert await find(storage, CODEHOST, acme, shop) == at_nowhere(CODEHOST)


async def test_a_connection_of_an_organization_is_never_one_of_the_platform(storage: Postgres, pool: Pool, acme: UUID) -> None:
    """The slug cannot equal a platform connection's slug, so the test takes the check away."""
    await run_sql(pool, "alter table connections drop constraint connections_of_organizations_check")
    try:
        await run_sql(
            pool,
            """
            insert into connections (id, org_id, slug, protocol, name, state, settings, mapping, created_at)
            values (gen_random_uuid(), %s, 'websuite', 'oidc', 'Ours', 'active', '{}', '{}', now())""",
            acme,
        )
        assert (await listed(storage), await find(storage, WEBSUITE, acme)) == ([], None)
        await save(storage, WEBSUITE, FILLED)
        assert await listed(storage) == [WEBSUITE]
        assert await run_sql(pool, "select settings::text, client_secret from connections where org_id is not null") == [("{}", None)]
        async with storage.reading() as read:
            assert await read.connections.of_active_org(PLATFORM_CONNECTIONS[WEBSUITE][0]) is None
            assert await read.connections.credentials(PLATFORM_CONNECTIONS[WEBSUITE][0], NOW) is None
    finally:
        await run_sql(pool, "delete from connections where org_id is not null")
        await run_sql(
            pool,
            """
            alter table connections add constraint connections_of_organizations_check check (
                org_id is null
                or num_nulls(name, settings, mapping, created_at) = 0 and protocol in ('oidc', 'saml')
                   and slug not in ('codehost', 'websuite', 'officesuite'))""",
        )


@pytest.mark.parametrize("slug", list(PLATFORM_CONNECTIONS))
async def test_each_connection_has_its_own_row(storage: Postgres, pool: Pool, slug: ConnectionSlug) -> None:
    await save(storage, slug, at_nowhere(slug))
    assert await run_sql(pool, "select slug from connections where settings is not null") == [(slug,)]
    assert await find(storage, slug) == at_nowhere(slug)
