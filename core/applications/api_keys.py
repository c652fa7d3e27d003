"""API keys, with which programs use the service interface (identity.md sections 2.3 and 4.4; security.md section 7)."""

from __future__ import annotations

import hmac
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from core.applications import events, services
from core.applications.services_rules import ServiceNotFound
from core.kernel import principals
from core.kernel.errors import refuse
from core.kernel.principals import Capability, Permission, ServiceKey
from core.kernel.values import digest, new_id

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from core.applications.services_rules import Service
    from core.kernel.principals import Member
    from core.kernel.values import Listed
    from core.tenancy.organizations_rules import Organization
    from ports import Ports
    from ports.storage import Transaction
from core.applications.api_keys_rules import LAST_USED_PRECISION, LONGEST, ApiKey, ApiKeyInvalid, ApiKeyNotFound, grantable, new_key

# What members do with them


async def create(
    ports: Ports, caller: Member, slug: str, name: str, permissions: Sequence[str], expires_in_days: int | None
) -> tuple[ApiKey, str]:
    """A key of the service, and its text, which nobody gets to see again (identity.md section 4.4).

    Raises NoPermissions, PermissionUnknown, PermissionTwice, and what services.enter raises.
    """
    granted = grantable(permissions)
    now = ports.clock.now()
    text, prefix = new_key(ports.policy.key_environment)
    async with ports.storage.transaction(by=caller) as tx:
        organization, service = await services.enter(tx, caller, slug, Capability.API_KEYS_MANAGE)
        key = ApiKey(
            id=new_id(),
            org_id=organization.id,
            service_id=service.id,
            name=name,
            prefix=prefix,
            permissions=granted,
            last_used_at=None,
            expires_at=None if expires_in_days is None else now + timedelta(days=expires_in_days),
            created_by=caller.user_id,
            created_at=now,
        )
        await tx.api_keys.add(key, digest(text))
        tx.record(events.api_key_created(key, service.slug))
    return key, text


async def listed(ports: Ports, caller: Member, slug: str, limit: int, offset: int) -> Listed[ApiKey]:
    """Keys of the service, expired ones too, the oldest first. Raises ServiceNotFound."""
    async with ports.storage.reading() as read:
        service = await read.services.by_slug(caller.acts_in.id, slug) or refuse(ServiceNotFound)
        return await read.api_keys.page(service.org_id, service.id, limit, offset)


async def find(ports: Ports, caller: Member, slug: str, key_id: UUID) -> ApiKey:
    """One key of the service. Raises ServiceNotFound, ApiKeyNotFound."""
    async with ports.storage.reading() as read:
        service = await read.services.by_slug(caller.acts_in.id, slug) or refuse(ServiceNotFound)
        return await read.api_keys.by_id(service.org_id, service.id, key_id) or refuse(ApiKeyNotFound)


async def delete(ports: Ports, caller: Member, slug: str, key_id: UUID) -> None:
    """Remove a key, whose next request is refused. Raises ApiKeyNotFound, and what services.enter raises."""
    async with ports.storage.transaction(by=caller) as tx:
        organization, service = await services.enter(tx, caller, slug, Capability.API_KEYS_MANAGE)
        key = await tx.api_keys.by_id(organization.id, service.id, key_id) or refuse(ApiKeyNotFound)
        await tx.api_keys.remove(organization.id, service.id, key.id)
        tx.record(events.api_key_deleted(key, service.slug))


# What keys do


async def authenticate(ports: Ports, key: str, permission: Permission, *, address: str | None, agent: str | None) -> ServiceKey:
    """Who presents this key, which has to have the permission.

    It is looked up by the SHA-256 of the whole of it, never by a part, so nothing about a key can be learned by trying; and what was found
    is compared once more, in constant time (security.md K-1). Raises ApiKeyInvalid, PermissionMissing, OrganizationNotActive.
    """
    now = ports.clock.now()
    if len(key) > LONGEST:
        raise ApiKeyInvalid
    key_hash = digest(key)
    async with ports.storage.reading() as read:
        standing = await read.api_keys.standing(key_hash, now)
    if standing is None or not hmac.compare_digest(standing.key_hash, key_hash):
        raise ApiKeyInvalid
    caller = ServiceKey(key_id=standing.key_id, permissions=standing.permissions, service=standing.service, address=address, agent=agent)
    if standing.last_used_at is None or standing.last_used_at <= now - LAST_USED_PRECISION:
        async with ports.storage.counting() as at_once:
            await at_once.api_keys.used(standing.key_id, now, now - LAST_USED_PRECISION)
    principals.require_permission(caller, permission)
    return caller


async def enter(tx: Transaction, caller: ServiceKey, permission: Permission, now: datetime) -> tuple[Organization, Service]:
    """The organization of the key, locked, and its service, if the key may still do this (security.md Z-5).

    With this begins every change that a key makes; whoever deletes the key or the service holds the organization, too.
    Raises ApiKeyInvalid, PermissionMissing, OrganizationNotActive.
    """
    organization = await tx.organizations.lock(caller.service.org_id) or refuse(ApiKeyInvalid)
    service = await tx.services.by_id(organization.id, caller.service.id) or refuse(ApiKeyInvalid)
    if not await tx.api_keys.is_live(service.id, caller.key_id, now):
        raise ApiKeyInvalid
    # What a key may do never changes; what its organization lets it do does.
    principals.require_permission(replace(caller, service=replace(caller.service, status=organization.status)), permission)
    return organization, service
