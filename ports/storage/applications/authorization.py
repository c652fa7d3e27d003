"""Storage of the permissions and roles of applications, and of the users and groups that have them."""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.applications.model.authorization import (
    AuthorizationDocument,
    FirstHolders,
    HolderCount,
    RoleOfUser,
    ServiceAuthorization,
    ServiceRoleHolder,
    StoredRole,
)
from core.kernel.values import Page, PageResult
from core.tenancy.model.groups import AssignedGroup


class AuthorizationsRead(Protocol):
    """Read access to the permissions and roles of services."""

    async def find(self, org_id: UUID, service_id: UUID) -> ServiceAuthorization | None:
        """Return the permissions and roles of a service, or None if there is no such service."""

    async def find_role(self, org_id: UUID, service_id: UUID, slug: str) -> StoredRole | None: ...
    async def count_holders(self, org_id: UUID, service_id: UUID, slugs: Collection[str] | None = None) -> Mapping[str, HolderCount]:
        """Return the numbers of users and groups of each role of the service that has any, by slug. `slugs` narrows the roles."""

    async def application_with_role(self, org_id: UUID, slug: str) -> str | None:
        """Return the name of an application of the organization that has a role with this slug, or None."""

    async def first_holders(self, org_id: UUID, service_id: UUID, role_slugs: Collection[str], limit: int) -> FirstHolders:
        """Return the first users and groups that got one of these roles, at most `limit` of each. It is two statements."""


class Authorizations(AuthorizationsRead, Protocol):
    """Write access. Callers lock the organization before calling any method."""

    async def save(
        self, org_id: UUID, service_id: UUID, document: AuthorizationDocument, role_ids: Mapping[str, UUID], now: datetime
    ) -> int:
        """Replace the permissions and roles of a service, and return the new version.

        Roles that are not in the document are taken from their users and groups. `role_ids` are the ids of new roles, by slug; the
        other roles keep theirs.
        """


class RoleAssignmentsRead(Protocol):
    """Read access to the users and groups that have roles of services."""

    async def page(self, org_id: UUID, role_id: UUID, page: Page, *, search: str | None = None) -> PageResult[ServiceRoleHolder]:
        """Return a page of the users who have the role, in the order in which they got it.

        `search` is a part of an email address in lower case.
        """

    async def find(self, org_id: UUID, role_id: UUID, user_id: UUID) -> ServiceRoleHolder | None:
        """Return the user as one who has the role alone, or None if they do not have it."""

    async def of_user(self, org_id: UUID, user_id: UUID, service_id: UUID | None = None) -> list[RoleOfUser]:
        """Return the roles of a user in the services of the organization, or in one of them, sorted by service and slug.

        Roles of the user's groups are among them.
        """

    async def count_of_user(self, org_id: UUID, user_id: UUID) -> int:
        """Return the number of roles that the user has alone."""

    async def groups(self, org_id: UUID, role_id: UUID) -> list[AssignedGroup]:
        """Return the groups that have the role, by name."""

    async def of_group(self, org_id: UUID, group_id: UUID) -> list[RoleOfUser]:
        """Return the roles that the group gives to its users, sorted by service and slug."""


class RoleAssignments(RoleAssignmentsRead, Protocol):
    """Write access. Callers lock the organization and then the account. Changes of groups need only the organization."""

    async def add(self, org_id: UUID, service_id: UUID, role_id: UUID, user_id: UUID, now: datetime) -> None: ...
    async def remove(self, org_id: UUID, role_id: UUID, user_id: UUID) -> bool:
        """Take the role from the user, and return whether they had it."""

    async def add_group(self, org_id: UUID, service_id: UUID, role_id: UUID, group_id: UUID, now: datetime) -> bool:
        """Give the role to the group. Return False if the group has it already."""

    async def remove_group(self, org_id: UUID, role_id: UUID, group_id: UUID) -> bool:
        """Take the role from the group, and return whether it had it."""
