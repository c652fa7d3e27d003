"""Storage of API resources, service accounts, and the credentials of programs."""

from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.accounts.accounts_rules import AccountSummary
from core.kernel.principals import Role
from core.kernel.values import Page, PageResult
from core.programs.api_resources_rules import ApiResource, ResourceAssignment, ResourceClient, ResourceIdentifier
from core.programs.service_accounts_rules import ServiceAccountContext


class ApiResourcesRead(Protocol):
    """Read access to API resources, their clients and the users that are assigned to them."""

    async def of_org(self, org_id: UUID) -> list[ApiResource]:
        """Return the API resources of the organization, oldest first."""
        ...

    async def by_id(self, org_id: UUID, resource_id: UUID) -> ApiResource | None: ...
    async def count(self, org_id: UUID) -> int: ...

    async def requested(self, service_id: UUID, canonical: str) -> ApiResource | None:
        """Return the active API resource with this identifier, after normalization, if the service is one of its clients.

        Both belong to the same organization.
        """
        ...

    async def may_use(self, org_id: UUID, resource_id: UUID, user_id: UUID) -> bool:
        """Return whether the user has access to the API resource. It is false if there is no such API resource."""
        ...

    async def clients(self, org_id: UUID, resource_id: UUID, page: Page) -> PageResult[ResourceClient]:
        """Return a page of the applications that may ask for the resource, by name."""
        ...

    async def client(self, org_id: UUID, resource_id: UUID, client_id: UUID) -> ResourceClient | None: ...

    async def assignments(
        self, org_id: UUID, resource_id: UUID, page: Page, *, search: str | None = None
    ) -> PageResult[ResourceAssignment]:
        """Return a page of the users that are assigned to the resource, earliest first.

        `search` is a part of an email address in lower case.
        """
        ...


class ApiResources(ApiResourcesRead, Protocol):
    """Write access to API resources. Callers lock the organization before calling any method."""

    async def add(self, resource: ApiResource, identifier: ResourceIdentifier) -> None:
        """Add an API resource with this identifier. Raises: IdentifierTaken."""
        ...

    async def save(self, resource: ApiResource) -> None:
        """Save all fields of an API resource that can change. Its clients lose those of their own scopes that it no longer has."""
        ...

    async def remove(self, org_id: UUID, resource_id: UUID) -> None:
        """Delete an API resource with its clients, assignments and consents."""
        ...

    async def save_client(self, org_id: UUID, resource_id: UUID, client: ResourceClient) -> None: ...
    async def remove_client(self, org_id: UUID, resource_id: UUID, service_id: UUID) -> None: ...

    async def assign(self, org_id: UUID, resource_id: UUID, user_id: UUID, now: datetime) -> bool:
        """Assign a user whose account is locked. Return False if the user is assigned already."""
        ...

    async def unassign(self, org_id: UUID, resource_id: UUID, user_id: UUID) -> bool:
        """End the assignment of a user. Return False if there is none."""
        ...


class ServiceAccountsRead(Protocol):
    """Read access to service accounts.

    An account is live if the named credential is valid, and if its owner could create it now: an
    account of an organization needs an owner whose role there allows it, and an account of the
    platform needs a platform owner.
    """

    async def load_context(self, account_id: UUID, credential_id: UUID, slug: str | None, now: datetime) -> ServiceAccountContext | None:
        """Return the account, with the organization of `slug`, or None if the account is not live."""
        ...

    async def summary(self, org_id: UUID, account_id: UUID) -> AccountSummary | None:
        """Return the account as invitations show it in place of a user's account."""
        ...


class ServiceAccounts(ServiceAccountsRead, Protocol):
    """Write access to service accounts. Callers lock the organization before calling any method."""

    async def lock_live(self, org_id: UUID | None, account_id: UUID, credential_id: UUID) -> Role | None:
        """Keep the account and its credential from being changed or revoked. Return its role, or None if it is not live.

        A credential that has expired during the request counts as valid. An account of the platform
        (`org_id` is None) has the role `owner` here.
        """
        ...


# The repositories of this area, by the kind of access


class ProgramsReading(Protocol):
    """Read access to the repositories of programs."""

    @property
    def api_resources(self) -> ApiResourcesRead: ...
    @property
    def service_accounts(self) -> ServiceAccountsRead: ...


class ProgramsTransaction(Protocol):
    """The repositories of programs in a transaction."""

    @property
    def api_resources(self) -> ApiResources: ...
    @property
    def service_accounts(self) -> ServiceAccounts: ...
