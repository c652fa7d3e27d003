"""The services' SCIM groups: a service with the policy `assigned` is a group with the users that the directory assigned to it.

Members that an admin or an API key assigned are not in the group, so that the directory cannot
remove them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from core.applications import access, events
from core.applications.model import users
from core.applications.model.services import Service
from core.kernel import values
from core.kernel.callers import ScimClient
from core.provisioning import tokens as scim_tokens
from core.provisioning.model import filters
from core.provisioning.model import groups as groups_model
from ports import Ports


def to_service_group(service: Service | None, external_ids: Mapping[UUID, str]) -> groups_model.ScimGroup:
    """Return the service as a group. Raises: GroupNotFound if there is no such service, or it has another policy."""
    if service is None or service.access.policy is not users.AccessPolicy.ASSIGNED:
        raise groups_model.GroupNotFound
    external_id = external_ids.get(service.id)
    return groups_model.ScimGroup(
        id=service.id,
        name=service.name,
        external_id=external_id,
        created_at=service.created_at,
        updated_at=service.updated_at,
        kind=groups_model.GroupKind.SERVICE,
    )


async def list_matching(ports: Ports, caller: ScimClient, filter_: filters.ScimFilter | None) -> list[groups_model.ScimGroup]:
    """Return the service groups that match the filter, oldest first."""
    async with ports.storage.reading() as read:
        external_ids = await read.scim_users.group_external_ids(caller.org_id)
        services = await read.services.with_policy(caller.org_id, users.AccessPolicy.ASSIGNED)
        groups = [to_service_group(service, external_ids) for service in services]
        if filter_ is None:
            return groups
        ids = groups_model.named_member_ids(filter_)
        members = await read.assignments.all_by_directory(caller.org_id, ids) if ids else {}
        asks_for_empty = filters.tests_presence(filter_, filters.ScimField.MEMBER)
        empty = await read.assignments.without_directory(caller.org_id, [group.id for group in groups]) if asks_for_empty else set[UUID]()
    return [
        group
        for group in groups
        if groups_model.matches_group(filter_, group, members.get(group.id, ()), has_members=group.id not in empty)
    ]


async def find(ports: Ports, caller: ScimClient, group_id: UUID) -> groups_model.ScimGroup:
    """Return a service's group."""
    async with ports.storage.reading() as read:
        service = await read.services.by_id(caller.org_id, group_id)
        return to_service_group(service, await read.scim_users.group_external_ids(caller.org_id))


def list_member_ids(ports: Ports, caller: ScimClient, group_id: UUID) -> values.Batches[UUID]:
    """Return the ids of the users that the directory assigned to the service, in order."""

    async def read_batch(last: UUID | None, count: int) -> Sequence[UUID]:
        async with ports.storage.reading() as read:
            return await read.assignments.page_by_directory(caller.org_id, group_id, last, count)

    return values.Batches(read_batch, size=groups_model.BATCH_SIZE)


async def change(ports: Ports, caller: ScimClient, group_id: UUID, group_changes: groups_model.GroupChanges) -> groups_model.ScimGroup:
    """Assign users to the service, end directory assignments, and set the external id: everything or nothing.

    A user that an admin or an API key assigned stays assigned, and is not in the group. Adding a user that the
    directory blocks, or an anonymized user, changes nothing.

    Raises: GroupNotFound, AssigneeUnknown, ScimTokenInvalid, OrganizationNotActive.
    """
    now, changes = ports.clock.now(), group_changes.provisioned
    async with ports.storage.transaction(by=caller) as tx:
        locked_organization = scim_tokens.lock_organization(tx, caller, now)
        service = await tx.services.by_id(caller.org_id, group_id)
        organization = await locked_organization()
        group = to_service_group(service, await tx.scim_users.group_external_ids(organization.id))
        assert service is not None, "to_service_group refuses other groups"
        assignable = await tx.assignments.assignable(organization.id, changes.added)
        if others := changes.added - assignable:
            known = await tx.scim_users.group_members(organization.id, others)
            if others != {member.user_id for member in known if member.is_blocked or member.is_anonymized}:
                raise groups_model.AssigneeUnknown
        named = None if changes.replace_all else changes.added | changes.removed
        present = await tx.assignments.by_directory(organization.id, service.id, named)
        leaving = present - changes.added if changes.replace_all else present & changes.removed
        joining = assignable - present
        if joining or leaving:
            await tx.scim_users.lock(organization.id, [*joining, *leaving])
        if leaving:
            await access.unassign_users(tx, service, leaving, users.EnrollmentOrigin.DIRECTORY)
            await tx.organization_sessions.end_without_access(service.org_id, [service.id], leaving, now)
        if joining:
            await access.assign_users(tx, service, joining, users.EnrollmentOrigin.DIRECTORY, now)
        external_id = group_changes.external_id
        if external_id is not values.KEEP and external_id != group.external_id:
            await tx.scim_users.save_group_external_id(organization.id, service.id, external_id, now)
            tx.record(events.external_id_changed(service, group.external_id, external_id))
            group = replace(group, external_id=external_id, updated_at=now)
    return group
