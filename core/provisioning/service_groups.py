"""The SCIM groups of services: each service with the policy `assigned` is a group of the users that the directory assigned to it.

Members that an admin or an API key assigned are not in the group, so that the directory cannot
remove them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.applications import access
from core.applications.access_rules import AccessPolicy, EnrollmentOrigin
from core.kernel.values import Batches, parse_id
from core.provisioning import tokens as scim_tokens
from core.provisioning.filters import FieldValue, ScimField, comparisons, matches
from core.provisioning.group_patches import GroupMemberUnknown
from core.provisioning.groups_rules import BATCH_SIZE, GroupNotFound, ScimGroup

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from core.applications.services_rules import Service
    from core.kernel.principals import ScimClient
    from core.provisioning.filters import ScimFilter
    from core.provisioning.group_patches import MemberChanges
    from ports import Ports
    from ports.storage import Reading


def to_service_group(service: Service | None) -> ScimGroup:
    """Return the service as a group. Raises: GroupNotFound if there is no such service, or its policy is another one."""
    if service is None or service.access.policy is not AccessPolicy.ASSIGNED:
        raise GroupNotFound
    return ScimGroup(id=service.id, name=service.name, external_id=None, created_at=service.created_at, updated_at=service.updated_at)


async def list_matching(ports: Ports, caller: ScimClient, filter_: ScimFilter | None) -> list[ScimGroup]:
    """Return the groups of services that match the filter, oldest first."""
    async with ports.storage.reading() as read:
        groups = [to_service_group(service) for service in await read.services.with_policy(caller.org_id, AccessPolicy.ASSIGNED)]
        return groups if filter_ is None else [group for group in groups if await _matches(read, caller, filter_, group)]


async def _matches(read: Reading, caller: ScimClient, filter_: ScimFilter, group: ScimGroup) -> bool:
    member_values = {test.value for test in comparisons(filter_) if test.field is ScimField.MEMBER}
    ids = {id_ for value in member_values if isinstance(value, str) and (id_ := parse_id(value)) is not None}
    members = await read.assignments.by_directory(caller.org_id, group.id, ids) if ids else set()
    values: dict[ScimField, FieldValue] = {
        ScimField.ID: str(group.id),
        ScimField.DISPLAY_NAME: group.name,
        ScimField.RESOURCE_TYPE: "Group",
        ScimField.CREATED: group.created_at,
        ScimField.LAST_MODIFIED: group.updated_at,
        ScimField.MEMBER: frozenset(map(str, members)),
    }
    return matches(filter_, values.get)


async def find(ports: Ports, caller: ScimClient, group_id: UUID) -> ScimGroup:
    """Return the group of a service. Raises: GroupNotFound."""
    async with ports.storage.reading() as read:
        return to_service_group(await read.services.by_id(caller.org_id, group_id))


def list_member_ids(ports: Ports, caller: ScimClient, group_id: UUID) -> Batches[UUID]:
    """Return the ids of the users that the directory assigned to the service, in order."""

    async def read_batch(last: UUID | None, count: int) -> Sequence[UUID]:
        async with ports.storage.reading() as read:
            return await read.assignments.page_by_directory(caller.org_id, group_id, last, count)

    return Batches(read_batch, size=BATCH_SIZE)


async def change_members(ports: Ports, caller: ScimClient, group_id: UUID, changes: MemberChanges) -> ScimGroup:
    """Assign users to the service, and end assignments by the directory: all of them or none.

    A user that an admin or an API key assigned stays assigned, and is not in the group.

    Raises: GroupNotFound, GroupMemberUnknown, ScimTokenInvalid, OrganizationNotActive.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        locked_organization = scim_tokens.lock_organization_deferred(tx, caller, now)
        service = await tx.services.by_id(caller.org_id, group_id)
        organization = locked_organization()
        group = to_service_group(service)
        assert service is not None, "to_service_group refuses other groups"
        if changes.added - await tx.assignments.assignable(organization.id, changes.added):
            raise GroupMemberUnknown
        named = None if changes.replace_all else changes.added | changes.removed
        present = await tx.assignments.by_directory(organization.id, service.id, named)
        leaving = present - changes.added if changes.replace_all else present & changes.removed
        joining = changes.added - present
        if joining or leaving:
            await tx.scim_users.lock(organization.id, [*joining, *leaving])
        for user_id in sorted(leaving):
            await access.unassign_user(tx, service, user_id, EnrollmentOrigin.DIRECTORY)
        for user_id in sorted(joining):
            await access.assign_user(tx, service, user_id, EnrollmentOrigin.DIRECTORY, now)
    return group
