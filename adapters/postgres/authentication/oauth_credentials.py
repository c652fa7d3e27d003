"""Storage for the services' OAuth credentials at identity providers. The client secrets are encrypted."""

from typing import Final
from uuid import UUID

from adapters.postgres.engine.statements import SealingRepository
from core.authentication.model.identities import ServiceOAuthCredentials
from core.kernel.connections import ConnectionSlug
from core.kernel.providers import ProviderClient
from ports.crypto import SecretContext

OF_SERVICE: Final = """
    from service_connections x join connections c on c.id = x.connection_id and c.org_id is null
    where x.org_id = %(org_id)s and x.service_id = %(service_id)s and x.client_id is not null"""


def secret_context(row: str) -> SecretContext:
    return SecretContext("service_connections", row, "client_secret")


def name_of(service_id: UUID, provider: ConnectionSlug) -> str:
    """Return the row name that the secret's encryption is bound to."""
    return f"{service_id}/{provider}"


class OAuthCredentials(SealingRepository):
    """Implements `ports.storage.authentication.credentials.OAuthCredentials`."""

    async def load_client(self, org_id: UUID, service_id: UUID, provider: ConnectionSlug) -> ProviderClient | None:
        return await self._one(
            lambda row: ProviderClient(row[0], self._vault.open(row[1], secret_context(name_of(service_id, provider))).decode()),
            f"select x.client_id, x.client_secret {OF_SERVICE} and c.slug = %(provider)s",
            org_id=org_id,
            service_id=service_id,
            provider=provider,
        )

    async def list_of_service(self, org_id: UUID, service_id: UUID) -> dict[ConnectionSlug, ServiceOAuthCredentials]:
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

    async def remove(self, org_id: UUID, service_id: UUID, provider: ConnectionSlug) -> bool:
        sql = """
            update service_connections x set client_id = null, client_secret = null, updated_at = null
            from connections c
            where c.id = x.connection_id and c.org_id is null
              and x.org_id = %(org_id)s and x.service_id = %(service_id)s and c.slug = %(provider)s
              and x.client_id is not null"""
        return await self._run(sql, org_id=org_id, service_id=service_id, provider=provider) == 1
