"""What is asked of storage about services."""

from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.access import ServiceContext
from core.services import ListedService, Service, ServiceType
from core.subscriptions import Entitlement


class ServicesRead(Protocol):
    """Services, looked at."""

    async def by_slug(self, org_id: UUID, slug: str) -> Service | None: ...
    async def by_id(self, org_id: UUID, service_id: UUID) -> Service | None: ...

    async def context_of(self, service_id: UUID) -> ServiceContext | None: ...

    async def context(self, org_slug: str, slug: str) -> ServiceContext | None:
        """The service with its organization, whatever the status of that."""
        ...

    async def taken_in(self, service_id: UUID, user_id: UUID, now: datetime) -> tuple[ServiceContext, Entitlement] | None:
        """The service with its organization, whatever the status of that, and what the person has of it."""
        ...

    async def named(self, org_slug: str, slug: str) -> tuple[Service, ServiceContext] | None:
        """The same with all that the service is."""
        ...

    async def of_client(self, client_id: UUID) -> tuple[Service, ServiceContext] | None:
        """The same for the service that applications know by this client id."""
        ...

    async def listed(
        self, org_id: UUID, service_type: ServiceType | None, after: Service | None, limit: int, offset: int
    ) -> list[ListedService]:
        """Those of this type that come after this one, the oldest first."""
        ...

    async def count(self, org_id: UUID) -> int: ...


class Services(ServicesRead, Protocol):
    """Services, changed. The organization is locked before any of these."""

    async def add(self, service: Service) -> None:
        """Raises ServiceSlugTaken."""
        ...

    async def save(self, service: Service) -> None:
        """Write all that can change of it; the counters are not among it."""
        ...

    async def delete(self, org_id: UUID, service_id: UUID, now: datetime) -> None:
        """Remove the service and what hangs on it, when nobody is signing in to it any more; nobody can after that.

        A tombstone tells Sweep.DELETED_SERVICES to remove its logins.
        """
        ...

    async def lock_users(self, org_id: UUID, service_id: UUID, after: UUID | None, limit: int) -> UUID | None:
        """Lock the next who used this service, which is gone, in the order of their ids; the last of them, or None if there are no more.

        And who of them used no other service of the organization as end users, so that they do not begin to.
        """
        ...

    async def remove_users(self, org_id: UUID, service_id: UUID, after: UUID | None, until: UUID) -> int:
        """Remove those that were locked last; how many of them are end users of the organization no more."""
        ...

    async def remove_totals(self, org_id: UUID, service_id: UUID, forgotten: int) -> None:
        """Remove the totals of its logins, and count out so many end users."""
        ...

    async def purge(self, service_id: UUID, limit: int) -> None:
        """Remove at most `limit` logins to a deleted service."""
        ...
