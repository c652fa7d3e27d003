"""What is asked of storage about credentials at providers."""

from typing import Protocol
from uuid import UUID

from core.oauth_credentials import Credentials
from core.providers import Provider, ProviderClient


class OAuthCredentialsRead(Protocol):
    """What services are known by at identity providers, looked at. The secrets are sealed."""

    async def of(self, org_id: UUID, service_id: UUID, provider: Provider) -> Credentials | None: ...

    async def client(self, org_id: UUID, service_id: UUID, provider: Provider) -> ProviderClient | None:
        """The same with the secret. Raises SealBroken."""
        ...

    async def providers(self, org_id: UUID, service_id: UUID) -> list[Provider]:
        """At which this service has any."""
        ...


class OAuthCredentials(OAuthCredentialsRead, Protocol):
    """The same, changed. The organization is locked before any of these."""

    async def put(self, org_id: UUID, service_id: UUID, credentials: Credentials, client_secret: str) -> None:
        """In the place of those that the service has at this provider. The service is the organization's."""
        ...

    async def remove(self, org_id: UUID, service_id: UUID, provider: Provider) -> bool:
        """Whether there were any."""
        ...
