"""An organization's API resources, managed by its members (RFC 8707)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from core.applications import access
from core.applications.model import users
from core.applications.model.client_settings import client_host
from core.kernel import uris
from core.kernel.access import require_view
from core.kernel.callers import OrganizationCaller
from core.kernel.errors import refuse
from core.kernel.roles import Capability
from core.kernel.values import KEEP, Email, Keep, Page, PageResult, new_id, provided
from core.programs import events
from core.programs.model import api_resources, client_policy
from core.tenancy import organizations
from core.tenancy.model import groups
from ports import Ports, storage


async def create(
    ports: Ports,
    caller: OrganizationCaller,
    identifier: str,
    name: str,
    scopes: Sequence[api_resources.ResourceScope],
    token_seconds: int = api_resources.DEFAULT_TOKEN_SECONDS,
) -> api_resources.ApiResource:
    """Create an API resource. No application may ask for it yet, and its policy admits anyone."""
    resource_identifier = api_resources.parse_identifier(identifier, caller.acts_in.id, ports.tokens.issuer)
    checked_scopes, seconds, now = api_resources.check_scopes(scopes), api_resources.check_token_seconds(token_seconds), ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        organization, _ = await organizations.lock_organization_for(tx, caller, Capability.RESOURCES_MANAGE)
        if await tx.api_resources.count(organization.id) >= api_resources.MAX_RESOURCES:
            raise api_resources.TooManyApiResources
        host = resource_identifier.host
        if host is not None and await tx.domains.verified_owner_of_host(host) != organization.id:
            raise api_resources.IdentifierHostNotVerified
        resource = api_resources.ApiResource(
            id=new_id(),
            org_id=organization.id,
            identifier=resource_identifier.text,
            name=name,
            scopes=checked_scopes,
            token_seconds=seconds,
            created_at=now,
            updated_at=now,
        )
        await tx.api_resources.add(resource, resource_identifier)
        tx.record(events.api_resource_created(resource))
    return resource


async def list_resources(ports: Ports, caller: OrganizationCaller) -> list[api_resources.ApiResource]:
    """Return the organization's API resources, oldest first, at most MAX_RESOURCES."""
    async with ports.storage.reading() as read:
        return await read.api_resources.of_org(caller.acts_in.id)


async def find(ports: Ports, caller: OrganizationCaller, resource_id: UUID) -> api_resources.ApiResource:
    """Return the organization's API resource with this id."""
    async with ports.storage.reading() as read:
        return await read.api_resources.by_id(caller.acts_in.id, resource_id) or refuse(api_resources.ApiResourceNotFound)


async def lock_organization_for(tx: storage.Transaction, caller: OrganizationCaller, resource_id: UUID) -> api_resources.ApiResource:
    """Lock the caller's organization, check again that they may manage API resources, and return this API resource.

    All changes to an API resource need the lock on its organization.
    """
    organization, _ = await organizations.lock_organization_for(tx, caller, Capability.RESOURCES_MANAGE)
    return await tx.api_resources.by_id(organization.id, resource_id) or refuse(api_resources.ApiResourceNotFound)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiResourceChanges:
    """An API resource's new values. Fields that are KEEP stay as they are. The identifier never changes."""

    name: str | Keep = KEEP
    scopes: Sequence[api_resources.ResourceScope] | Keep = KEEP
    token_seconds: int | Keep = KEEP


async def update(ports: Ports, caller: OrganizationCaller, resource_id: UUID, changes: ApiResourceChanges) -> api_resources.ApiResource:
    """Change an API resource. `scopes` replaces all scopes.

    From the next refresh on, tokens do not have a removed scope. Applications and service accounts lose a
    removed scope that they had for themselves.

    Raises: NoApiResourceChanges, ApiResourceNotFound.
    """
    values: dict[str, Any] = provided(
        name=changes.name,
        scopes=KEEP if isinstance(changes.scopes, Keep) else api_resources.check_scopes(changes.scopes),
        token_seconds=KEEP if isinstance(changes.token_seconds, Keep) else api_resources.check_token_seconds(changes.token_seconds),
    )
    if not values:
        raise api_resources.NoApiResourceChanges
    async with ports.storage.transaction(by=caller) as tx:
        old = await lock_organization_for(tx, caller, resource_id)
        new = replace(old, **values)
        new = replace(new, external_clients=new.external_clients.narrowed(new.scope_names))
        if new != old:
            new = replace(new, updated_at=ports.clock.now())
            await tx.api_resources.save(new)
            tx.record(events.api_resource_updated(old, new))
    return new


async def delete(ports: Ports, caller: OrganizationCaller, resource_id: UUID) -> None:
    """Delete an API resource.

    The API resource's tokens are inactive from now on, and sessions that were granted access to it cannot be refreshed.
    """
    async with ports.storage.transaction(by=caller) as tx:
        resource = await lock_organization_for(tx, caller, resource_id)
        await tx.api_resources.remove(resource.org_id, resource.id)
        tx.record(events.api_resource_deleted(resource))


# Requests by applications


async def find_requested(ports: Ports, read: storage.Reading, service_id: UUID, identifier: str) -> api_resources.ApiResource | None:
    """Return the API resource with this identifier, in any spelling, if the application may ask for it now, or None.

    Whether the user has access to it is not checked here.
    """
    canonical = _normalize(ports, identifier)
    return None if canonical is None else await read.api_resources.requested(service_id, canonical)


async def find_for_external(ports: Ports, read: storage.Reading, identifier: str) -> api_resources.ExternalTarget | None:
    """Return the active API resource with this identifier, in any spelling, from any active organization, or None.

    Whether the resource's policy admits the client, and its access policy the user, is not checked here.
    """
    canonical = _normalize(ports, identifier)
    return None if canonical is None else await read.api_resources.find_for_external(canonical)


def _normalize(ports: Ports, identifier: str) -> str | None:
    canonical = uris.normalize(identifier)
    if canonical is None or (uris.is_on_loopback(canonical) and not uris.is_on_loopback(ports.tokens.issuer)):
        return None
    return canonical


# The users that applications get tokens for


async def save_policy(ports: Ports, caller: OrganizationCaller, resource_id: UUID, policy: users.AccessPolicy) -> api_resources.ApiResource:
    """Set the users that applications get tokens for. A user who loses access gets no further tokens."""
    async with ports.storage.transaction(by=caller) as tx:
        old = await lock_organization_for(tx, caller, resource_id)
        new = replace(old, policy=policy)
        if new != old:
            new = replace(new, updated_at=ports.clock.now())
            await tx.api_resources.save(new)
            tx.record(events.api_resource_access_updated(old, new))
    return new


async def save_external_clients(
    ports: Ports,
    caller: OrganizationCaller,
    resource_id: UUID,
    policy: client_policy.ExternalClientPolicy,
    access: users.AccessPolicy | None = None,
) -> api_resources.ApiResource:
    """Set the external clients that may ask for an API resource. A client that the policy no longer admits gets no further tokens.

    `access` takes the place of the access policy `anyone`, and of no other policy. Without `access`, the first clients are not admitted
    while anyone has access: their own policy admits anyone, too.
    """
    async with ports.storage.transaction(by=caller) as tx:
        old = await lock_organization_for(tx, caller, resource_id)
        new = replace(old, external_clients=client_policy.check_policy(policy, old.scope_names), policy=access or old.policy)
        is_switched_on = not old.external_clients.is_on and new.external_clients.is_on
        if is_switched_on and access is None and old.policy is users.AccessPolicy.ANYONE:
            raise client_policy.ExternalClientsOfAnyone
        if old.policy is not users.AccessPolicy.ANYONE and new.policy is not old.policy:
            raise client_policy.AccessWasChosen
        if new == old:
            return old
        new = replace(new, updated_at=ports.clock.now())
        # Lock order: first the API resource, which `save` locks. A client that is stored at the same time holds this lock,
        # and so the next statements see this client.
        await tx.api_resources.save(new)
        if new.external_clients != old.external_clients:
            origins = await tx.api_resources.origins_of_external_clients(new.org_id, new.id)
            refused = [origin for origin in origins if not client_policy.admits(new.external_clients, origin and client_host(origin))]
            await tx.api_resources.remove_external_clients(new.org_id, new.id, refused)
            tx.record(events.external_client_policy_updated(old, new))
        if new.policy is not old.policy:
            tx.record(events.api_resource_access_updated(old, new))
    return new


async def load_with_users(read: storage.Reading, caller: OrganizationCaller, resource_id: UUID) -> api_resources.ApiResource:
    """Return an API resource to a caller who sees its users."""
    require_view(caller, Capability.END_USERS_VIEW)
    return await read.api_resources.by_id(caller.acts_in.id, resource_id) or refuse(api_resources.ApiResourceNotFound)


async def list_assignments(
    ports: Ports, caller: OrganizationCaller, resource_id: UUID, page: Page, *, search: str | None = None
) -> PageResult[api_resources.ResourceAssignment]:
    """Return a page with the users who are assigned to the API resource. `search` is a part of an email address."""
    text = Email.parse_part(search or "") or None
    async with ports.storage.reading() as read:
        resource = await load_with_users(read, caller, resource_id)
        return await read.api_resources.assignments(resource.org_id, resource.id, page, search=text)


async def assign(ports: Ports, caller: OrganizationCaller, resource_id: UUID, user_id: UUID) -> None:
    """Assign the organization's confirmed member or end user to an API resource. Assigning a user again changes nothing."""
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        resource = await lock_organization_for(tx, caller, resource_id)
        await access.lock_assignee(tx, resource.org_id, user_id)
        if await tx.api_resources.assign(resource.org_id, resource.id, user_id, now):
            tx.record(events.user_assigned_to_resource(resource, user_id))


async def assign_by_email(ports: Ports, caller: OrganizationCaller, resource_id: UUID, email: Email) -> UUID:
    """Assign the user with this address to an API resource, as `assign` does. Return the user's id.

    The refusal is the same for an address without an account.
    """
    async with ports.storage.reading() as read:
        await read.api_resources.by_id(caller.acts_in.id, resource_id) or refuse(api_resources.ApiResourceNotFound)
        account = await read.accounts.by_email(email) or refuse(users.AssigneeNotFound)
    await assign(ports, caller, resource_id, account.id)
    return account.id


async def unassign(ports: Ports, caller: OrganizationCaller, resource_id: UUID, user_id: UUID) -> None:
    """End a user's assignment to an API resource. Under the policy `assigned`, the user gets no further tokens."""
    async with ports.storage.transaction(by=caller) as tx:
        resource = await lock_organization_for(tx, caller, resource_id)
        if not await tx.api_resources.unassign(resource.org_id, resource.id, user_id):
            raise api_resources.NotAssignedToResource
        tx.record(events.user_unassigned_from_resource(resource, user_id))


async def list_groups(ports: Ports, caller: OrganizationCaller, resource_id: UUID) -> Sequence[groups.AssignedGroup]:
    """Return the groups that are assigned to the API resource, by name."""
    async with ports.storage.reading() as read:
        resource = await load_with_users(read, caller, resource_id)
        return await read.api_resources.groups(resource.org_id, resource.id)


async def assign_group(ports: Ports, caller: OrganizationCaller, resource_id: UUID, group_id: UUID) -> None:
    """Assign a group to an API resource: under the policy `assigned`, its users get tokens. Assigning the group again changes nothing."""
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        resource = await lock_organization_for(tx, caller, resource_id)
        group = await tx.groups.by_id(resource.org_id, group_id) or refuse(groups.OrganizationGroupNotFound)
        if await tx.api_resources.assign_group(resource.org_id, resource.id, group.id, now):
            tx.record(events.group_assigned_to_resource(resource, group))


async def unassign_group(ports: Ports, caller: OrganizationCaller, resource_id: UUID, group_id: UUID) -> None:
    """End a group's assignment. Users who lose access by this get no further tokens."""
    async with ports.storage.transaction(by=caller) as tx:
        resource = await lock_organization_for(tx, caller, resource_id)
        group = await tx.groups.by_id(resource.org_id, group_id) or refuse(api_resources.GroupNotAssignedToResource)
        if not await tx.api_resources.unassign_group(resource.org_id, resource.id, group.id):
            raise api_resources.GroupNotAssignedToResource
        tx.record(events.group_unassigned_from_resource(resource, group))


# The applications that may ask for it


async def list_clients(ports: Ports, caller: OrganizationCaller, resource_id: UUID, page: Page) -> PageResult[api_resources.ResourceClient]:
    """Return a page with the applications that may ask for the API resource, by name."""
    async with ports.storage.reading() as read:
        resource = await read.api_resources.by_id(caller.acts_in.id, resource_id) or refuse(api_resources.ApiResourceNotFound)
        return await read.api_resources.clients(resource.org_id, resource.id, page)


async def find_client(ports: Ports, caller: OrganizationCaller, resource_id: UUID, client_id: UUID) -> api_resources.ResourceClient:
    """Return an application that may ask for the API resource."""
    async with ports.storage.reading() as read:
        resource = await read.api_resources.by_id(caller.acts_in.id, resource_id) or refuse(api_resources.ApiResourceNotFound)
        return await read.api_resources.client(resource.org_id, resource.id, client_id) or refuse(api_resources.ResourceClientNotFound)


async def save_client(
    ports: Ports, caller: OrganizationCaller, resource_id: UUID, client_id: UUID, own_scopes: Sequence[str]
) -> api_resources.ResourceClient:
    """Let the organization's application ask for the API resource on behalf of its users.

    `own_scopes` replaces the scopes that the application gets for itself, without a user. The application has no such
    scopes if the list is empty.
    """
    async with ports.storage.transaction(by=caller) as tx:
        resource = await lock_organization_for(tx, caller, resource_id)
        service, context = await tx.services.by_client_id(client_id) or refuse(api_resources.ResourceClientNotFound)
        if service.org_id != resource.org_id:
            raise api_resources.ResourceClientNotFound
        if len(set(own_scopes)) < len(own_scopes) or not set(own_scopes) <= set(resource.scope_names):
            raise api_resources.OwnScopeUnknown
        if own_scopes and context.is_public:
            raise api_resources.PublicClientHasNoScopes
        old = await tx.api_resources.client(resource.org_id, resource.id, client_id)
        new = api_resources.ResourceClient(
            client_id=client_id,
            service_id=service.id,
            slug=service.slug,
            name=service.name,
            scopes=resource.known_scopes(own_scopes),
            created_at=ports.clock.now() if old is None else old.created_at,
        )
        if new != old:
            await tx.api_resources.save_client(resource.org_id, resource.id, new)
            tx.record(events.resource_client_updated(resource, new))
    return new


async def remove_client(ports: Ports, caller: OrganizationCaller, resource_id: UUID, client_id: UUID) -> None:
    """Forbid an application to ask for the API resource. The application gets no further tokens for the API resource."""
    async with ports.storage.transaction(by=caller) as tx:
        resource = await lock_organization_for(tx, caller, resource_id)
        client = await tx.api_resources.client(resource.org_id, resource.id, client_id) or refuse(api_resources.ResourceClientNotFound)
        await tx.api_resources.remove_client(resource.org_id, resource.id, client.service_id)
        tx.record(events.resource_client_removed(resource, client))
