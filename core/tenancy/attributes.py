"""The user attributes that an organization declares, and their values for members and groups.

`core.applications.attributes` has the values as end users and API keys see them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

from core.accounts.own_account import lock_person
from core.kernel.access import may_view
from core.kernel.callers import OrganizationCaller
from core.kernel.errors import refuse
from core.kernel.roles import Capability
from core.tenancy import events, organizations
from core.tenancy.groups import require_power_over_members
from core.tenancy.model import attributes, groups, members
from core.tenancy.model.attributes import SOURCE_PREFIX
from ports import Ports, storage


async def list_declared(ports: Ports, caller: OrganizationCaller) -> Sequence[attributes.Attribute]:
    """Return the attributes that the caller's organization declared, in their order."""
    async with ports.storage.reading() as read:
        return await read.attributes.list_declared(caller.acts_in.id)


async def find(ports: Ports, caller: OrganizationCaller, name: str) -> attributes.Attribute:
    """Return an attribute that the caller's organization declared."""
    async with ports.storage.reading() as read:
        return await _find(read, caller.acts_in.id, name)


async def create(ports: Ports, caller: OrganizationCaller, attribute: attributes.Attribute) -> attributes.Attribute:
    """Declare an attribute, after the organization's present attributes."""
    attribute.checked()
    async with ports.storage.transaction(by=caller) as tx:
        organization, _ = await organizations.lock_organization_for(tx, caller, Capability.ORGANIZATION_MANAGE)
        declared = await tx.attributes.list_declared(organization.id)
        if any(other.name == attribute.name for other in declared):
            raise attributes.AttributeNameTaken
        if len(declared) >= attributes.MAX_ATTRIBUTES:
            raise attributes.TooManyAttributes
        new = replace(attribute, position=max((other.position for other in declared), default=0) + 1)
        await tx.attributes.put(new)
        tx.record(events.attribute_created(new))
    return new


async def update(ports: Ports, caller: OrganizationCaller, name: str, changes: Mapping[str, Any]) -> attributes.Attribute:
    """Change an attribute's label, writers, merge rule or position, by field. The values stay.

    Raises: NoAttributeChanges, AttributeNotFound, AttributeLabelInvalid, AttributeMergeInvalid.
    """
    if not changes:
        raise attributes.NoAttributeChanges
    async with ports.storage.transaction(by=caller) as tx:
        organization, _ = await organizations.lock_organization_for(tx, caller, Capability.ORGANIZATION_MANAGE)
        old = await _find(tx, organization.id, name)
        new = replace(old, **changes).checked()
        if new != old:
            await tx.attributes.put(new)
            tx.record(events.attribute_updated(old, new))
    return new


async def delete(ports: Ports, caller: OrganizationCaller, name: str) -> None:
    """Delete an attribute with all its values."""
    async with ports.storage.transaction(by=caller) as tx:
        organization, _ = await organizations.lock_organization_for(tx, caller, Capability.ORGANIZATION_MANAGE)
        attribute = await _find(tx, organization.id, name)
        application = await tx.service_claims.service_with_source(organization.id, f"{SOURCE_PREFIX}{name}")
        if application is not None:
            raise attributes.AttributeInUse(application)
        await tx.attributes.delete(organization.id, name)
        tx.record(events.attribute_deleted(attribute))


async def of_member(ports: Ports, caller: OrganizationCaller, user_id: UUID) -> attributes.AttributeValues:
    """Return a member's attributes with their values."""
    async with ports.storage.reading() as read:
        if not await read.members.exists(caller.acts_in.id, user_id):
            raise members.MemberNotFound
        return await read.attributes.of_user(caller.acts_in.id, user_id)


async def change_of_member(
    ports: Ports, caller: OrganizationCaller, user_id: UUID, changes: Mapping[str, Any]
) -> attributes.AttributeValues:
    """Change a member's values as an admin.

    A change to None removes the value. A caller who may not read values gets only the values that they set.
    """
    async with ports.storage.transaction(by=caller) as tx:
        organization, authority = await organizations.lock_authority(tx, caller, Capability.MEMBERS_MANAGE)
        members.require_power_over(authority, await tx.members.lock(organization.id, user_id) or refuse(members.MemberNotFound))
        new = await change(tx, organization.id, user_id, changes, attributes.AttributeWriter.ADMIN, ports.clock.now()) or refuse(
            members.MemberNotFound
        )
        return new if may_view(caller, Capability.MEMBERS_MANAGE) else new.only(changes)


async def of_group(ports: Ports, caller: OrganizationCaller, group_id: UUID) -> tuple[groups.Group, attributes.AttributeValues]:
    """Return a group, and the attributes with its values."""
    async with ports.storage.reading() as read:
        group = await read.groups.by_id(caller.acts_in.id, group_id) or refuse(groups.OrganizationGroupNotFound)
        return group, await read.attributes.of_group(group.org_id, group.id)


async def change_of_group(
    ports: Ports, caller: OrganizationCaller, group_id: UUID, changes: Mapping[str, Any]
) -> attributes.AttributeValues:
    """Change a group's values as an admin, also for a group that a directory manages. A change to None removes the value.

    The group's members get the values, so the caller needs power over every member (security R-10). A caller who may not read values gets
    only the values that they set.
    """
    async with ports.storage.transaction(by=caller) as tx:
        organization, authority = await organizations.lock_authority(tx, caller, Capability.GROUPS_MANAGE)
        group = await tx.groups.by_id(organization.id, group_id) or refuse(groups.OrganizationGroupNotFound)
        await require_power_over_members(tx, authority, group)
        old = await tx.attributes.of_group(organization.id, group.id)
        new = replace(old, values=old.change(changes, attributes.AttributeWriter.ADMIN))
        if names := old.changed_names(new):
            await tx.attributes.save_group_values(organization.id, group.id, new.values, ports.clock.now())
            tx.record(events.group_attributes_changed(group, names))
        return new if may_view(caller, Capability.GROUPS_MANAGE) else new.only(changes)


async def change(
    tx: storage.Transaction, org_id: UUID, user_id: UUID, changes: Mapping[str, Any], writer: attributes.AttributeWriter, now: datetime
) -> attributes.AttributeValues | None:
    """Change a user's values in a locked organization, and return all values, or None if it does not know the user.

    Anonymized users are unknown. Raises: the errors of `AttributeValues.change`.
    """
    if await lock_person(tx, user_id) is None:
        return None
    old = await tx.attributes.of_user(org_id, user_id)
    new = replace(old, values=old.change(changes, writer))
    if names := old.changed_names(new):
        if not await tx.attributes.save_values(org_id, user_id, new.values, now):
            return None
        tx.record(events.attributes_changed(org_id, user_id, names, writer))
    return new


async def _find(read: storage.Reading | storage.Transaction, org_id: UUID, name: str) -> attributes.Attribute:
    declared = await read.attributes.list_declared(org_id)
    return next((attribute for attribute in declared if attribute.name == name), None) or refuse(attributes.AttributeNotFound)
