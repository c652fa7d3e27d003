"""What is asked of storage about who uses the services of an organization."""

from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.end_users import EndUser, LinkedIdentity, ListedEndUser, UsedService
from core.values import Listed, Page
from ports.storage.soon import Soon


class EndUsersRead(Protocol):
    """Who uses the services of an organization, looked at. Of a person, this is what belongs to that organization (security.md T-3)."""

    async def page(self, org_id: UUID, page: Page, *, search: str | None = None, service_id: UUID | None = None) -> Listed[ListedEndUser]:
        """Those whose account is not deactivated, nor they by the organization's directory; who use this service, if one is given; whose
        address has `search` in it, which is in lower case. The newest relation, to the service or else to the organization, comes first."""
        ...

    async def by_id(self, org_id: UUID, user_id: UUID) -> EndUser | None: ...
    async def services(self, org_id: UUID, user_id: UUID) -> list[UsedService]: ...
    async def identities(self, org_id: UUID, user_id: UUID) -> list[LinkedIdentity]: ...

    async def knows(self, org_id: UUID, user_id: UUID) -> bool:
        """Whether the person uses a service of the organization, or is its member."""
        ...


class EndUsers(EndUsersRead, Protocol):
    """Who uses the services of an organization, changed. The account is locked before any of these."""

    async def add(self, service_id: UUID, user_id: UUID, now: datetime, *, signed_in: bool) -> bool:
        """The person uses the service from now on, in their own right, and has signed in to it just now, if so.

        Whether the service is there; it then stays until the transaction ends. Also counts.
        """
        ...

    def enrol(self, service_id: UUID, user_id: UUID, now: datetime) -> Soon[bool]:
        """The same for a sign-in, before the next statement; None where the service is not there."""
        ...

    def enrol_member(self, org_id: UUID, service_slug: str, user_id: UUID, now: datetime) -> Soon[bool]:
        """The same for the service of this slug, but whoever did not use it before does so by being a member, and no longer than that."""
        ...
