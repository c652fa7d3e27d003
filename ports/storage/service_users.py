"""What is asked of storage about the users of a service."""

from collections.abc import Collection
from typing import Protocol
from uuid import UUID

from core.service_users import ServiceUser
from core.values import Listed


class ServiceUsersRead(Protocol):
    """Who uses a service, as its API keys see them, looked at."""

    async def page(self, org_id: UUID, service_id: UUID, limit: int, offset: int) -> Listed[ServiceUser]:
        """Those who use the service, for the longest time first."""
        ...

    async def by_id(self, org_id: UUID, service_id: UUID, user_id: UUID) -> ServiceUser | None: ...


class ServiceUsers(ServiceUsersRead, Protocol):
    """The same, changed. The account is locked before any of these."""

    async def remove(self, org_id: UUID, service_id: UUID, user_id: UUID) -> None:
        """The person does not use the service any more: also removes what they have of it, identities and subscriptions. Also counts."""
        ...

    async def remove_former_members(self, org_id: UUID, user_ids: Collection[UUID]) -> None:
        """These, who have left the organization, do not use those of its services any more that they have used by being members, and by
        nothing else; unless they have a subscription there, which is kept with whom it is for. Also counts."""
        ...

    async def remove_everywhere(self, user_id: UUID) -> None:
        """The same for every service, also those of organizations that are gone."""
        ...
