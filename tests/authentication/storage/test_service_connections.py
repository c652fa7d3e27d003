"""Platform connections, and what services set for them."""

from uuid import UUID

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.applications.model.services import Service
from core.authentication.model.identities import ServiceOAuthCredentials
from core.kernel.connections import CODEHOST, OFFICESUITE, PLATFORM_CONNECTIONS
from tests.applications.storage.services import by_id, put, service
from tests.support.builders import run_sql
from tests.support.rows import NOW, within

SCOPES = {CODEHOST: ("repo", "gist"), OFFICESUITE: ()}


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
