"""API keys: members manage them, and programs authenticate with them to the service API (security K-1, K-2)."""

import hmac
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

from core.applications import events, services
from core.applications.model import api_keys
from core.applications.model.services import Service, ServiceNotFound
from core.kernel import access, callers, roles, values
from core.kernel.causes import Caller
from core.kernel.errors import refuse
from core.tenancy import organizations
from core.tenancy.model.organizations import Organization
from ports import Ports
from ports.storage import Transaction

# Members manage keys


async def create(
    ports: Ports, caller: callers.OrganizationCaller, slug: str, name: str, permissions: Sequence[str], expires_in_days: int | None
) -> tuple[api_keys.ApiKey, str]:
    """Create a key for the service and return it with its secret, which cannot be read again.

    Raises: NoPermissions, UnknownPermission, DuplicatePermission, ServiceNotFound, ScopeInsufficient; the errors of
    `require_own_rights`.
    """
    granted = api_keys.parse_permissions(permissions)
    now = ports.clock.now()
    secret, prefix = api_keys.generate_key(ports.policy.key_environment)
    async with ports.storage.transaction(by=caller) as tx:
        organization, rights = await organizations.lock_organization_for(tx, caller, roles.Capability.API_KEYS_MANAGE)
        service = await tx.services.by_slug(organization.id, slug) or refuse(ServiceNotFound)
        api_keys.require_own_rights(granted, rights, caller.granted if isinstance(caller, callers.ActingServiceAccount) else None)
        access.require_scopes_for(caller, api_keys.rights_used(granted, access.lasting_rights(caller, rights)))
        key = api_keys.ApiKey(
            id=values.new_id(),
            org_id=organization.id,
            service_id=service.id,
            name=name,
            prefix=prefix,
            permissions=granted,
            last_used_at=None,
            expires_at=None if expires_in_days is None else now + timedelta(days=expires_in_days),
            created_by=caller.actor_id,
            created_at=now,
        )
        await tx.api_keys.add(key, values.digest(secret))
        tx.record(events.api_key_created(key, service.slug))
    return key, secret


async def list_keys(
    ports: Ports, caller: callers.OrganizationCaller, slug: str, limit: int, offset: int
) -> values.PageResult[api_keys.ApiKey]:
    """Return a page with the service's keys, newest first, including expired keys."""
    async with ports.storage.reading() as read:
        service = await read.services.by_slug(caller.acts_in.id, slug) or refuse(ServiceNotFound)
        return await read.api_keys.page(service.org_id, service.id, limit, offset)


async def find(ports: Ports, caller: callers.OrganizationCaller, slug: str, key_id: UUID) -> api_keys.ApiKey:
    """Return the service's key with this id."""
    async with ports.storage.reading() as read:
        service = await read.services.by_slug(caller.acts_in.id, slug) or refuse(ServiceNotFound)
        return await read.api_keys.by_id(service.org_id, service.id, key_id) or refuse(api_keys.ApiKeyNotFound)


async def delete(ports: Ports, caller: callers.OrganizationCaller, slug: str, key_id: UUID) -> None:
    """Delete a key. The key's next request is refused."""
    async with ports.storage.transaction(by=caller) as tx:
        organization, service = await services.lock_organization_for(tx, caller, slug, roles.Capability.API_KEYS_MANAGE)
        key = await tx.api_keys.by_id(organization.id, service.id, key_id) or refuse(api_keys.ApiKeyNotFound)
        await tx.api_keys.remove(organization.id, service.id, key.id)
        tx.record(events.api_key_deleted(key, service.slug))


# Programs use keys


async def authenticate(ports: Ports, caller: Caller, key: str, permission: roles.Permission) -> callers.ServiceKey:
    """Return the caller that this key authenticates, if the key has the permission.

    The lookup uses the whole key's SHA-256, never a part, so that trying keys reveals nothing about existing keys. The
    result is compared again in constant time (security K-1).

    Raises: ApiKeyInvalid, PermissionMissing, OrganizationNotActive.
    """
    now, key_hash = ports.clock.now(), hash_of(key)
    async with ports.storage.reading() as read:
        record = await read.api_keys.by_hash(key_hash, now)
    return await accept(ports, caller, record, key_hash, permission)


def hash_of(key: str) -> bytes:
    """Return the hash by which a key is looked up. Raises: ApiKeyInvalid if the text cannot be a key."""
    if len(key) > api_keys.MAX_KEY_LENGTH:
        raise api_keys.ApiKeyInvalid
    return values.digest(key)


async def accept(
    ports: Ports, caller: Caller, record: api_keys.ApiKeyRecord | None, key_hash: bytes, permission: roles.Permission
) -> callers.ServiceKey:
    """Return the caller with the key that was found by this hash, and record the key's use.

    Raises: ApiKeyInvalid if none was found; PermissionMissing, OrganizationNotActive.
    """
    if record is None or not hmac.compare_digest(record.key_hash, key_hash):
        raise api_keys.ApiKeyInvalid
    program = callers.ServiceKey(
        key_id=record.key_id, permissions=record.permissions, service=record.service, address=caller.address, agent=caller.agent
    )
    now = ports.clock.now()
    if record.last_used_at is None or record.last_used_at <= now - api_keys.LAST_USED_PRECISION:
        async with ports.storage.autocommit() as autocommit:
            await autocommit.api_keys.record_use(record.key_id, now, now - api_keys.LAST_USED_PRECISION)
    access.require_permission(program, permission)
    return program


async def lock_organization_for(
    tx: Transaction, caller: callers.ServiceKey, permission: roles.Permission, now: datetime
) -> tuple[Organization, Service]:
    """Lock the key's organization, and return it with the key's service if the key still has the permission (security Z-5).

    Every change by a key starts here. Deleting the key or the service also locks this organization.
    """
    organization = await tx.organizations.lock(caller.service.org_id) or refuse(api_keys.ApiKeyInvalid)
    service = await tx.services.by_id(organization.id, caller.service.id) or refuse(api_keys.ApiKeyInvalid)
    if not await tx.api_keys.is_live(service.id, caller.key_id, now):
        raise api_keys.ApiKeyInvalid
    # A key's permissions never change, but its organization's status does.
    access.require_permission(replace(caller, service=replace(caller.service, status=organization.status)), permission)
    return organization, service


async def authority_of(tx: Transaction, caller: callers.ServiceKey) -> roles.Authority:
    """Return a key's power over members in its organization: as much as its creator has now (security R-10).

    A key outlives its creator. Without its creator, a key has the power that the role `member` has. The caller has
    locked the organization.
    """
    return await tx.created_secrets.creator(caller.service.org_id, caller.key_id) or roles.Authority(
        roles.MEMBER, roles.ROLES[roles.MEMBER].rights
    )
