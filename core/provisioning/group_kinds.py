"""The three kinds of SCIM groups: the organization, its services for assigned users, and the groups that directories create."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Protocol
from uuid import UUID

from core.kernel.callers import ScimClient
from core.kernel.values import Batches
from core.provisioning import directory_groups, groups, service_groups
from core.provisioning.model.filters import ScimFilter
from core.provisioning.model.groups import GroupChanges, GroupCreationUnsupported, GroupDeletionForbidden, GroupKind, ScimGroup
from ports import Ports


class GroupsOfKind(Protocol):
    """The use cases for one kind of SCIM group. A module implements every kind."""

    async def list_matching(self, ports: Ports, caller: ScimClient, filter_: ScimFilter | None) -> list[ScimGroup]:
        """Return the groups that match the filter."""

    def list_member_ids(self, ports: Ports, caller: ScimClient, group_id: UUID) -> Batches[UUID]:
        """Return the members' ids in order."""

    async def change(self, ports: Ports, caller: ScimClient, group_id: UUID, changes: GroupChanges) -> ScimGroup:
        """Apply all changes, or none."""


# In list order
_KINDS: Final[Mapping[GroupKind, GroupsOfKind]] = MappingProxyType(
    {GroupKind.ORGANIZATION: groups, GroupKind.SERVICE: service_groups, GroupKind.DIRECTORY: directory_groups}
)


async def list_matching(ports: Ports, caller: ScimClient, filter_: ScimFilter | None) -> list[ScimGroup]:
    """Return the groups of all kinds that match the filter. The organization comes first."""
    return [group for kind in _KINDS.values() for group in await kind.list_matching(ports, caller, filter_)]


async def find(ports: Ports, caller: ScimClient, group_id: UUID) -> ScimGroup:
    """Return a group of any kind."""
    if group_id == caller.org_id:
        return await groups.find(ports, caller, group_id)
    if (group := await directory_groups.find(ports, caller, group_id)) is not None:
        return group
    return await service_groups.find(ports, caller, group_id)


def list_member_ids(ports: Ports, caller: ScimClient, group: ScimGroup) -> Batches[UUID]:
    """Return the ids of the group's members, in order."""
    return _KINDS[group.kind].list_member_ids(ports, caller, group.id)


async def change(ports: Ports, caller: ScimClient, group: ScimGroup, changes: GroupChanges) -> ScimGroup:
    """Apply all changes to the group, or none. Raises: the errors of its kind."""
    return await _KINDS[group.kind].change(ports, caller, group.id, changes)


def require_creation(caller: ScimClient) -> None:
    """Check that the directory may create groups."""
    if not caller.directory_groups:
        raise GroupCreationUnsupported


async def delete(ports: Ports, caller: ScimClient, group_id: UUID) -> None:
    """Delete a group that the directory created. Raises: GroupDeletionForbidden for the other kinds; GroupNotFound."""
    if (await find(ports, caller, group_id)).kind is not GroupKind.DIRECTORY:
        raise GroupDeletionForbidden
    await directory_groups.delete(ports, caller, group_id)
