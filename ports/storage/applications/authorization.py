"""Storage for application permissions and roles, the users and groups that have them, and the facts for questions about access."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.applications.model import access_reasons, authorization, evaluation
from core.applications.model.api_keys import ApiKeyRecord
from core.kernel import values
from core.kernel.callers import ServiceContext
from core.tenancy.model.groups import AssignedGroup
from core.tenancy.model.members import MemberHoldings


class AuthorizationsRead(Protocol):
    """Read access to the services' permissions and roles."""

    async def find(self, org_id: UUID, service_id: UUID) -> authorization.ServiceAuthorization | None:
        """Return a service's permissions and roles, or None if there is no such service."""

    async def find_role(self, org_id: UUID, service_id: UUID, slug: str) -> authorization.StoredRole | None: ...
    async def count_holders(
        self, org_id: UUID, service_id: UUID, slugs: Collection[str] | None = None
    ) -> Mapping[str, authorization.HolderCount]:
        """Return how many users and groups have a role of the service, by slug, without unused roles. `slugs` narrows the roles."""

    async def application_with_role(self, org_id: UUID, slug: str) -> str | None:
        """Return the name of an application in the organization that has a role with this slug, or None."""

    async def first_holders(self, org_id: UUID, service_id: UUID, role_slugs: Collection[str], limit: int) -> authorization.FirstHolders:
        """Return the first users and groups that got such a role: at most `limit` users and `limit` groups.

        The method runs two statements.
        """


class Authorizations(AuthorizationsRead, Protocol):
    """Write access. Callers lock the organization before calling any method."""

    async def save(
        self, org_id: UUID, service_id: UUID, document: authorization.AuthorizationDocument, role_ids: Mapping[str, UUID], now: datetime
    ) -> int:
        """Replace a service's permissions and roles, and return the new version.

        Roles that are not in the document are taken from their users and groups. `role_ids` are the ids for new roles, by slug; existing
        roles keep their ids.
        """


class RoleAssignmentsRead(Protocol):
    """Read access to the users and groups that have service roles."""

    async def page(
        self, org_id: UUID, role_id: UUID, page: values.Page, *, search: str | None = None
    ) -> values.PageResult[authorization.ServiceRoleHolder]:
        """Return a page with the users who have the role, in the order in which they got it.

        `search` is a lower-case part of an email address.
        """

    async def find(self, org_id: UUID, role_id: UUID, user_id: UUID) -> authorization.ServiceRoleHolder | None:
        """Return the user as a holder of the role, or None. Roles through groups do not count."""

    async def of_user(self, org_id: UUID, user_id: UUID, service_id: UUID | None = None) -> list[authorization.RoleOfUser]:
        """Return a user's roles in the organization's services, or in a single service, sorted by service and slug.

        Roles that the user's groups give are included.
        """

    async def count_of_user(self, org_id: UUID, user_id: UUID) -> int:
        """Return how many roles the user has, without roles through groups."""

    async def groups(self, org_id: UUID, role_id: UUID) -> list[AssignedGroup]:
        """Return the groups that have the role, by name."""

    async def of_group(self, org_id: UUID, group_id: UUID) -> list[authorization.RoleOfUser]:
        """Return the roles that the group gives to its users, sorted by service and slug."""


class RoleAssignments(RoleAssignmentsRead, Protocol):
    """Write access. Callers lock the organization and then the account. Group changes need only the organization."""

    async def add(self, org_id: UUID, service_id: UUID, role_id: UUID, user_id: UUID, now: datetime) -> None: ...
    async def remove(self, org_id: UUID, role_id: UUID, user_id: UUID) -> bool:
        """Take the role from the user, and return whether they had it."""

    async def add_group(self, org_id: UUID, service_id: UUID, role_id: UUID, group_id: UUID, now: datetime) -> bool:
        """Give the role to the group. Return False if the group has it already."""

    async def remove_group(self, org_id: UUID, role_id: UUID, group_id: UUID) -> bool:
        """Take the role from the group, and return whether it had it."""


class AccessReasonsRead(Protocol):
    """Read access to the facts about a user at an organization's applications."""

    async def find(self, org_id: UUID, user_id: UUID) -> access_reasons.UserState | None:
        """Return the state of a member or end user in the organization, or None."""

    async def applications(
        self, org_id: UUID, user_id: UUID, page: values.Page, now: datetime
    ) -> values.PageResult[access_reasons.ApplicationFacts]:
        """Return a page with the organization's applications, by name, and the facts about the user at every application."""

    async def holdings(self, org_id: UUID, user_ids: Sequence[UUID]) -> dict[UUID, MemberHoldings]:
        """Return these users' groups, application roles and attributes in the organization."""


class EvaluationsRead(Protocol):
    """Read access to the facts about questions.

    Every method runs a single statement, so that all its facts are from the same moment.

    The facts have the questions' order. The credentials and the service are found even without questions.
    """

    async def by_key(
        self, key_hash: bytes, questions: Sequence[evaluation.Question], now: datetime
    ) -> tuple[ApiKeyRecord, list[evaluation.SubjectFacts]] | None:
        """Return the API key, and the facts for its service, or None if the key is unknown or expired."""

    async def by_service(
        self, org_id: UUID, service_id: UUID, questions: Sequence[evaluation.Question], now: datetime
    ) -> list[evaluation.SubjectFacts]:
        """Return the facts for a service."""

    async def by_credential(
        self, client_id: UUID, credential_id: UUID, questions: Sequence[evaluation.Question], now: datetime
    ) -> tuple[ServiceContext, list[evaluation.SubjectFacts]] | None:
        """Return the service with this client id, and the facts for it, or None if this credential's tokens have ended."""
