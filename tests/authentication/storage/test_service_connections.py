"""Connections and what services set for them, and the copies of both that version 0.9.0 reads and writes."""

from uuid import UUID, uuid4

import psycopg

from adapters.postgres.authentication.oauth_credentials import name_of, secret_context
from adapters.postgres.engine.migrate import migrate
from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.applications.model.services import Service
from core.authentication.model.identities import ServiceOAuthCredentials
from core.kernel.connections import CODEHOST, OFFICESUITE, PLATFORM_CONNECTIONS, WEBSUITE
from tests.applications.storage.services import by_id, put, service
from tests.support.builders import make_vault, run_sql
from tests.support.rows import HOUR, NOW, within

# Statements of version 0.9.0.
OLD_SCOPES = "select codehost_scopes, websuite_scopes, officesuite_scopes from services where id = %s"
OLD_CREDENTIALS = "select provider, client_id, client_secret, updated_at from oauth_credentials where service_id = %s order by provider"
OLD_SAVE = "update services set name = name, codehost_scopes = %s, websuite_scopes = %s, officesuite_scopes = %s where id = %s"
OLD_PUT = """
    insert into oauth_credentials (service_id, provider, org_id, client_id, client_secret, updated_at)
    values (%s, %s, %s, %s, %s, %s)
    on conflict (service_id, provider) do update set
        client_id = excluded.client_id, client_secret = excluded.client_secret, updated_at = excluded.updated_at"""
OLD_REMOVE = "delete from oauth_credentials where org_id = %s and service_id = %s and provider = %s"

SCOPES = {CODEHOST: ("repo", "gist"), OFFICESUITE: ()}
ROWS = """
    select c.slug, x.org_id, x.client_id, x.client_secret, x.updated_at, x.scopes
    from service_connections x join connections c on c.id = x.connection_id where x.service_id = %s order by c.slug"""


async def credentials(storage: Postgres, org: UUID, one: UUID) -> list[ServiceOAuthCredentials | None]:
    async with storage.reading() as read:
        own = await read.oauth_credentials.list_of_service(org, one)
    return [own.get(slug) for slug in PLATFORM_CONNECTIONS]


async def scopes_of(storage: Postgres, one: Service) -> object:
    found = await by_id(storage, one)
    assert found is not None
    return found.connection_scopes


async def test_the_database_knows_the_connections_of_the_platform(pool: Pool) -> None:
    rows = await run_sql(pool, "select id, org_id, slug, protocol from connections order by id")
    assert rows == [(id_, None, slug, protocol) for slug, (id_, protocol) in PLATFORM_CONNECTIONS.items()]


async def test_scopes_and_credentials_at_a_connection_are_independent(storage: Postgres, acme: UUID) -> None:
    one = await put(storage, service(acme, connection_scopes=SCOPES))
    own = ServiceOAuthCredentials(CODEHOST, "id", NOW)
    await within(storage, lambda tx: tx.oauth_credentials.put(acme, one.id, own, "secret"))
    assert await by_id(storage, one) == one
    await within(storage, lambda tx: tx.services.save(service(acme, id=one.id, connection_scopes=None)))
    assert await credentials(storage, acme, one.id) == [own, None, None]
    await within(storage, lambda tx: tx.services.save(one))
    await within(storage, lambda tx: tx.oauth_credentials.remove(acme, one.id, CODEHOST))
    assert await credentials(storage, acme, one.id) == [None, None, None]
    assert await scopes_of(storage, one) == SCOPES


async def test_version_0_9_0_sees_our_changes(storage: Postgres, pool: Pool, acme: UUID) -> None:
    one = await put(storage, service(acme, connection_scopes=SCOPES), service(acme, "other"))
    assert await run_sql(pool, OLD_SCOPES, one.id) == [(["repo", "gist"], None, [])]
    await within(storage, lambda tx: tx.services.save(service(acme, id=one.id, connection_scopes={WEBSUITE: ("mail",)})))
    assert await run_sql(pool, OLD_SCOPES, one.id) == [(None, ["mail"], None)]
    for secret, time in (("old", NOW - HOUR), ("new", NOW)):
        own = ServiceOAuthCredentials(CODEHOST, f"{secret} id", time)
        await within(storage, lambda tx, own=own, secret=secret: tx.oauth_credentials.put(acme, one.id, own, secret))  # type: ignore[misc]
        [(*columns, sealed, stored_at)] = await run_sql(pool, OLD_CREDENTIALS, one.id)
        assert (columns, stored_at) == ([CODEHOST, f"{secret} id"], time)
        assert make_vault().open(sealed, secret_context(name_of(one.id, CODEHOST))) == secret.encode()
    await run_sql(pool, "update service_connections set client_secret = 'under a new key' where client_id is not null")
    assert await run_sql(pool, OLD_CREDENTIALS, one.id) == [(CODEHOST, "new id", b"under a new key", NOW)]
    await within(storage, lambda tx: tx.oauth_credentials.remove(acme, one.id, CODEHOST))
    assert await run_sql(pool, OLD_CREDENTIALS, one.id) == []
    assert await run_sql(pool, OLD_SCOPES, one.id) == [(None, ["mail"], None)]


async def test_we_see_the_changes_of_version_0_9_0(storage: Postgres, pool: Pool, acme: UUID) -> None:
    one = await put(storage, service(acme, connection_scopes=SCOPES), service(acme, "other"))
    await run_sql(pool, OLD_SAVE, None, ["mail", "files"], [], one.id)
    assert await scopes_of(storage, one) == {WEBSUITE: ("mail", "files"), OFFICESUITE: ()}
    sealed = make_vault().seal(b"secret", secret_context(name_of(one.id, WEBSUITE)))
    for client_id in ("old", "new"):
        await run_sql(pool, OLD_PUT, one.id, WEBSUITE, acme, client_id, sealed, NOW)
        assert await credentials(storage, acme, one.id) == [None, ServiceOAuthCredentials(WEBSUITE, client_id, NOW), None]
    async with storage.reading() as read:
        client = await read.oauth_credentials.load_client(acme, one.id, WEBSUITE)
    assert client is not None
    assert client.client_secret == "secret"
    await run_sql(pool, OLD_REMOVE, acme, one.id, WEBSUITE)
    assert await credentials(storage, acme, one.id) == [None, None, None]
    assert await scopes_of(storage, one) == {WEBSUITE: ("mail", "files"), OFFICESUITE: ()}


async def test_a_service_that_version_0_9_0_adds_has_its_scopes(storage: Postgres, pool: Pool, acme: UUID) -> None:
    one = await put(storage, service(acme, connection_scopes=None))
    copy = """
        insert into services select (jsonb_populate_record(s, jsonb_build_object(
            'id', %s::uuid, 'slug', 'copy', 'client_id', gen_random_uuid(), 'websuite_scopes', '["mail"]'::jsonb))).*
        from services s where id = %s"""
    await run_sql(pool, copy, new := uuid4(), one.id)
    async with storage.reading() as read:
        added = await read.services.by_id(acme, new)
    assert added is not None
    assert added.connection_scopes == {WEBSUITE: ("mail",)}
    assert len(await run_sql(pool, ROWS, new)) == 1


async def test_an_upgrade_copies_scopes_and_credentials(old: psycopg.Connection) -> None:
    org, one, bare = uuid4(), uuid4(), uuid4()
    old.execute(
        "insert into organizations (id, slug, name, status, created_at, updated_at) values (%s, 'acme', 'Acme', 'active', now(), now())",
        [org],
    )
    for id_, slug, scopes in ((one, "shop", ["repo"]), (bare, "bare", None)):
        old.execute(
            """
            insert into services
                (id, org_id, slug, name, service_type, client_id, redirect_uris, created_at, updated_at, codehost_scopes)
            values (%s, %s, %s, 'Shop', 'spa', gen_random_uuid(), '{}', now(), now(), %s)""",
            [id_, org, slug, scopes],
        )
    for provider in (CODEHOST, WEBSUITE):
        old.execute(OLD_PUT.encode(), [one, provider, org, f"at {provider}", b"sealed", NOW])
    old_credentials = old.execute(OLD_CREDENTIALS.encode(), [one]).fetchall()
    await migrate(old.info.dsn)
    assert old.execute(ROWS.encode(), [one]).fetchall() == [
        (CODEHOST, org, "at codehost", b"sealed", NOW, ["repo"]),
        (WEBSUITE, org, "at websuite", b"sealed", NOW, None),
    ]
    assert old.execute(ROWS.encode(), [bare]).fetchall() == []
    assert old.execute(OLD_CREDENTIALS.encode(), [one]).fetchall() == old_credentials
    assert old.execute(OLD_SCOPES.encode(), [one]).fetchall() == [(["repo"], None, None)]
