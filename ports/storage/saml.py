"""What is asked of storage about identity providers of services (SAML)."""

from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.saml import Certificate, Configuration, Setup


class SamlRead(Protocol):
    """The identity providers of services, looked at. The key of a certificate stays sealed until
    it is asked for, which may raise SealBroken."""

    async def configuration(self, org_id: UUID, service_id: UUID) -> Configuration | None: ...

    async def certificate(self, org_id: UUID, service_id: UUID) -> Certificate | None:
        """The active one."""
        ...

    async def setup(self, org_slug: str, service_slug: str) -> Setup | None:
        """All of it, whatever the status of the organization; None if there is no such service."""
        ...


class Saml(SamlRead, Protocol):
    """The same, changed. The organization is locked before a configuration or a certificate is."""

    async def configure(self, org_id: UUID, service_id: UUID, configuration: Configuration, now: datetime) -> None:
        """In the place of what the service has. The service is the organization's."""
        ...

    async def disable(self, org_id: UUID, service_id: UUID, now: datetime) -> bool:
        """Whether it was enabled."""
        ...

    async def deactivate_certificate(self, org_id: UUID, service_id: UUID, now: datetime) -> bool:
        """End the active one, and forget its key; whether there was one."""
        ...

    async def add_certificate(self, org_id: UUID, service_id: UUID, certificate: Certificate) -> None:
        """As the active one, when there is no other. The service is the organization's."""
        ...

    async def setup_of(self, org_id: UUID, service_id: UUID) -> Setup | None:
        """All of how a service is set up that somebody is being signed out of."""
        ...
