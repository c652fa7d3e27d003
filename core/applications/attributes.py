"""User attributes as end users, API keys and the users themselves see them. `core.tenancy.attributes` declares the attributes."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from core.accounts.own_account import lock_own_account
from core.applications import api_keys
from core.applications.model import users
from core.kernel import access, callers, roles
from core.kernel.errors import refuse
from core.tenancy import attributes, organizations
from core.tenancy.model.attributes import AttributeValues, AttributeWriter, OwnAttributes
from core.tenancy.model.members import require_power_over
from ports import Ports


async def of_end_user(ports: Ports, caller: callers.OrganizationCaller, user_id: UUID) -> AttributeValues:
    """Return an end user's attributes with their values."""
    async with ports.storage.reading() as read:
        await read.end_users.by_id(caller.acts_in.id, user_id) or refuse(users.EndUserNotFound)
        return await read.attributes.of_user(caller.acts_in.id, user_id)


async def change_of_end_user(
    ports: Ports, caller: callers.OrganizationCaller, user_id: UUID, changes: Mapping[str, Any]
) -> AttributeValues:
    """Change an end user's values as an admin.

    A change to None removes the value. A caller who may not read values gets only the values that they set.
    """
    async with ports.storage.transaction(by=caller) as tx:
        organization, authority = await organizations.lock_authority(tx, caller, roles.Capability.END_USERS_MANAGE)
        await tx.end_users.by_id(organization.id, user_id) or refuse(users.EndUserNotFound)
        if (membership := await tx.members.lock(organization.id, user_id)) is not None:
            require_power_over(authority, membership)
        now = ports.clock.now()
        new = await attributes.change(tx, organization.id, user_id, changes, AttributeWriter.ADMIN, now) or refuse(users.EndUserNotFound)
        return new if access.may_view(caller, roles.Capability.END_USERS_VIEW) else new.only(changes)


async def of_service_user(ports: Ports, caller: callers.ServiceKey, user_id: UUID) -> AttributeValues:
    """Return the attributes of a user who uses the API key's service."""
    org_id = caller.service.org_id
    async with ports.storage.reading() as read:
        await read.service_users.by_id(org_id, caller.service.id, user_id) or refuse(users.ServiceUserNotFound)
        return await read.attributes.of_user(org_id, user_id)


async def change_of_service_user(ports: Ports, caller: callers.ServiceKey, user_id: UUID, changes: Mapping[str, Any]) -> AttributeValues:
    """Change values for a user who uses the service. A key that may not read users gets the values that it sets."""
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        organization, service = await api_keys.lock_organization_for(tx, caller, roles.Permission.WRITE_USERS, now)
        await tx.service_users.by_id(organization.id, service.id, user_id) or refuse(users.ServiceUserNotFound)
        if (membership := await tx.members.lock(organization.id, user_id)) is not None:
            require_power_over(await api_keys.authority_of(tx, caller), membership)
        values = await attributes.change(tx, organization.id, user_id, changes, AttributeWriter.APPLICATION, now)
        new = values or refuse(users.ServiceUserNotFound)
        return new if roles.Permission.READ_USERS in caller.permissions else new.only(changes)


async def list_own(ports: Ports, caller: callers.Person) -> Sequence[OwnAttributes]:
    """Return the caller's attributes in every organization that has attributes and knows the caller, by organization name."""
    async with ports.storage.reading() as read:
        return await read.attributes.own(caller.user_id)


async def change_own(ports: Ports, caller: callers.Person, org_slug: str, changes: Mapping[str, Any]) -> AttributeValues:
    """Change own values in an organization."""
    now = ports.clock.now()
    own = {each.org_slug: each.org_id for each in await list_own(ports, caller)}
    org_id = own.get(org_slug) or refuse(access.OrganizationNotFound)
    async with ports.storage.transaction(by=caller) as tx:
        await tx.organizations.lock(org_id) or refuse(access.OrganizationNotFound)
        await lock_own_account(tx, caller, now)
        if org_id not in [each.org_id for each in await tx.attributes.own(caller.user_id)]:
            raise access.OrganizationNotFound  # the user has left the organization since the request began
        return await attributes.change(tx, org_id, caller.user_id, changes, AttributeWriter.USER, now) or refuse(
            access.OrganizationNotFound
        )
