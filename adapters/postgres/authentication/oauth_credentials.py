"""Storage of the OAuth credentials of services at identity providers. The client secrets are encrypted."""

from uuid import UUID

from adapters.postgres.engine.statements import Row, SealingRepository
from core.authentication.model.identities import ServiceOAuthCredentials
from core.kernel.connections import ConnectionSlug
from core.kernel.providers import ProviderClient
from ports.crypto import SecretContext


def secret_context(row: str) -> SecretContext:
    return SecretContext("oauth_credentials", row, "client_secret")


def name_of(service_id: UUID, provider: ConnectionSlug) -> str:
    """Return the row name that the encryption of the secret is bound to."""
    return f"{service_id}/{provider}"


def to_credentials(row: Row) -> ServiceOAuthCredentials:
    return ServiceOAuthCredentials(row[0], row[1], row[2])


class OAuthCredentials(SealingRepository):
    """Implements `ports.storage.authentication.credentials.OAuthCredentials`."""

    async def find(self, org_id: UUID, service_id: UUID, provider: ConnectionSlug) -> ServiceOAuthCredentials | None:
        sql = """
            select provider, client_id, updated_at from oauth_credentials
            where org_id = %(org_id)s and service_id = %(service_id)s and provider = %(provider)s"""
        return await self._one(to_credentials, sql, org_id=org_id, service_id=service_id, provider=provider)

    async def load_client(self, org_id: UUID, service_id: UUID, provider: ConnectionSlug) -> ProviderClient | None:
        return await self._one(
            lambda row: ProviderClient(row[0], self._vault.open(row[1], secret_context(name_of(service_id, provider))).decode()),
            """
            select client_id, client_secret from oauth_credentials
            where org_id = %(org_id)s and service_id = %(service_id)s and provider = %(provider)s""",
            org_id=org_id,
            service_id=service_id,
            provider=provider,
        )

    async def list_providers(self, org_id: UUID, service_id: UUID) -> list[ConnectionSlug]:
        sql = "select provider from oauth_credentials where org_id = %(org_id)s and service_id = %(service_id)s order by provider"
        return await self._all(lambda row: row[0], sql, org_id=org_id, service_id=service_id)

    async def put(self, org_id: UUID, service_id: UUID, credentials: ServiceOAuthCredentials, client_secret: str) -> None:
        await self._run(
            """
            insert into oauth_credentials (service_id, provider, org_id, client_id, client_secret, updated_at)
            values (%(service_id)s, %(provider)s, %(org_id)s, %(client_id)s, %(client_secret)s, %(updated_at)s)
            on conflict (service_id, provider) do update set
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
                delete from oauth_credentials
                where org_id = %(org_id)s and service_id = %(service_id)s and provider = %(provider)s"""
        return await self._run(sql, org_id=org_id, service_id=service_id, provider=provider) == 1
