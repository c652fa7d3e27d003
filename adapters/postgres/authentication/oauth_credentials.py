"""Storage for platform connections, and for the OAuth credentials that the platform and services have there.

Client secrets are encrypted.
"""

from dataclasses import asdict, fields
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from psycopg.types.json import Jsonb

from adapters.postgres.engine import statements
from core.authentication.model.identities import ServiceOAuthCredentials
from core.kernel import connections
from ports.crypto import SecretContext

OF_SERVICE: Final = """
    from service_connections x join connections c on c.id = x.connection_id and c.org_id is null
    where x.org_id = %(org_id)s and x.service_id = %(service_id)s and x.client_id is not null"""


def secret_context(row: str) -> SecretContext:
    return SecretContext("service_connections", row, "client_secret")


def name_of(service_id: UUID | None, provider: connections.ConnectionSlug) -> str:
    """Return the row name that the secret's encryption is bound to."""
    return f"{service_id}/{provider}"


def connection_context(row: UUID) -> SecretContext:
    return SecretContext("connections", str(row), "client_secret")


def _to_connection(row: statements.Row) -> connections.Connection:
    stored: dict[str, Any] = row[1] | {"scopes": tuple(row[1]["scopes"])}
    # A process of another release may have stored more settings.
    known = {each.name: stored[each.name] for each in fields(connections.ConnectionSettings) if each.name in stored}
    return connections.platform_connection(connections.ConnectionSlug(row[0]), connections.ConnectionSettings(**known))


class OAuthCredentials(statements.SealingRepository):
    """Implements `ports.storage.authentication.credentials.OAuthCredentials`."""

    def list_connections(self) -> statements.Answer[list[connections.Connection]]:
        sql = "select slug, settings from connections where org_id is null and settings is not null order by id"
        return self._all(_to_connection, sql)

    async def load(
        self, slug: connections.ConnectionSlug, org_id: UUID | None, service_id: UUID | None
    ) -> connections.PlatformCredentials | None:
        def read(row: statements.Row) -> connections.PlatformCredentials:
            connection, (secret, own_id, own_secret) = _to_connection(row), row[2:]
            if own_id is not None:
                context = secret_context(name_of(service_id, slug))
                return connections.PlatformCredentials(
                    connection, connections.ProviderClient(own_id, self._vault.open(own_secret, context).decode())
                )
            client_id = connection.settings.client_id
            if client_id is None or secret is None:
                return connections.PlatformCredentials(connection, None)
            return connections.PlatformCredentials(
                connection, connections.ProviderClient(client_id, self._vault.open(secret, connection_context(connection.id)).decode())
            )

        sql = """
            select c.slug, c.settings, c.client_secret, x.client_id, x.client_secret from connections c
            left join service_connections x
                on x.org_id = %(org_id)s and x.service_id = %(service_id)s and x.connection_id = c.id and x.client_id is not null
            where c.org_id is null and c.slug = %(slug)s and c.settings is not null"""
        return await self._one(read, sql, slug=slug, org_id=org_id, service_id=service_id)

    async def save_connection(
        self, slug: connections.ConnectionSlug, credentials: connections.PlatformCredentials | None, now: datetime
    ) -> None:
        id_, client = connections.PLATFORM_CONNECTIONS[slug][0], None if credentials is None else credentials.client
        await self._write(
            """
            update connections set settings = %(settings)s, client_secret = %(secret)s, client_secret_set_at = %(set_at)s
            where org_id is null and id = %(id)s""",
            id=id_,
            settings=None if credentials is None else Jsonb(asdict(credentials.connection.settings)),
            secret=None if client is None else self._vault.seal(client.client_secret.encode(), connection_context(id_)),
            set_at=None if client is None else now,
        )

    async def list_of_service(self, org_id: UUID, service_id: UUID) -> dict[connections.ConnectionSlug, ServiceOAuthCredentials]:
        sql = f"select c.slug, x.client_id, x.updated_at {OF_SERVICE}"
        rows = await self._all(lambda row: ServiceOAuthCredentials(*row), sql, org_id=org_id, service_id=service_id)
        return {each.provider: each for each in rows}

    async def put(self, org_id: UUID, service_id: UUID, credentials: ServiceOAuthCredentials, client_secret: str) -> None:
        await self._run(
            """
            insert into service_connections (service_id, connection_id, org_id, client_id, client_secret, updated_at)
            select %(service_id)s, c.id, %(org_id)s, %(client_id)s, %(client_secret)s, %(updated_at)s
            from connections c where c.org_id is null and c.slug = %(provider)s
            on conflict (service_id, connection_id) do update set
                client_id = excluded.client_id, client_secret = excluded.client_secret, updated_at = excluded.updated_at""",
            service_id=service_id,
            provider=credentials.provider,
            org_id=org_id,
            client_id=credentials.client_id,
            client_secret=self._vault.seal(client_secret.encode(), secret_context(name_of(service_id, credentials.provider))),
            updated_at=credentials.updated_at,
        )

    async def remove(self, org_id: UUID, service_id: UUID, provider: connections.ConnectionSlug) -> bool:
        sql = """
            update service_connections x set client_id = null, client_secret = null, updated_at = null
            from connections c
            where c.id = x.connection_id and c.org_id is null
              and x.org_id = %(org_id)s and x.service_id = %(service_id)s and c.slug = %(provider)s
              and x.client_id is not null"""
        return await self._run(sql, org_id=org_id, service_id=service_id, provider=provider) == 1
