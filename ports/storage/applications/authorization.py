"""Storage of the permissions and roles of applications, and of the users who have them."""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.applications.model.authorization import Authorization, AuthorizationDocument
from core.kernel.values import Email


class AuthorizationsRead(Protocol):
    """Read access to the permissions and roles of services."""

    async def find(self, org_id: UUID, service_id: UUID) -> Authorization | None:
        """Return the permissions and roles of a service, or None if there is no such service."""

    async def count_holders(self, org_id: UUID, service_id: UUID) -> Mapping[str, int]:
        """Return the number of users of each role of the service that has any, by slug."""

    async def first_holders(self, org_id: UUID, service_id: UUID, role_slugs: Collection[str], limit: int) -> list[Email]:
        """Return the addresses of the first users who got one of these roles."""


class Authorizations(AuthorizationsRead, Protocol):
    """Write access. Callers lock the organization before calling any method."""

    async def save(
        self, org_id: UUID, service_id: UUID, document: AuthorizationDocument, role_ids: Mapping[str, UUID], now: datetime
    ) -> int:
        """Replace the permissions and roles of a service, and return the new version.

        Roles that are not in the document are taken from their users. `role_ids` are the ids of new roles, by slug; the
        other roles keep theirs.
        """
