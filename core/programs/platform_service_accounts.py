"""Service accounts of the platform, managed by platform owners.

They have no role: their scopes and granted capabilities are those of the platform. No use case here accepts
a service account as its caller.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from core.accounts import platform
from core.kernel.errors import refuse
from core.kernel.values import KEEP, Keep, new_id
from core.programs import credentials, events
from core.programs.service_accounts_rules import (
    MAX_ACCOUNTS,
    ListedServiceAccount,
    NoServiceAccountChanges,
    OwnerNotPlatformOwner,
    ServiceAccount,
    ServiceAccountNotFound,
    TooManyServiceAccounts,
    check_scopes,
    parse_capabilities,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from core.kernel.api_scopes import ApiScope
    from core.kernel.principals import Person
    from core.kernel.values import Page, PageResult
    from core.programs.credentials_rules import Credential, NewCredential
    from ports import Ports
    from ports.storage import Transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPlatformServiceAccount:
    """A service account of the platform to create. `scopes` is None for all of the platform, and `owner_id` for the caller."""

    name: str
    owner_id: UUID | None = None
    scopes: frozenset[ApiScope] | None = None
    granted: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformServiceAccountChanges:
    """The new values of a service account of the platform. Fields that are KEEP stay as they are."""

    name: str | Keep = KEEP
    owner_id: UUID | Keep = KEEP
    scopes: frozenset[ApiScope] | Keep | None = KEEP
    granted: Sequence[str] | Keep = KEEP


async def create(ports: Ports, caller: Person, request: NewPlatformServiceAccount) -> ListedServiceAccount:
    """Create a service account of the platform. It has no credential yet.

    Raises: ServiceAccountScopeUnknown, CapabilityNotGrantable, OwnerNotPlatformOwner,
    TooManyServiceAccounts; the errors of `platform.lock_rights`.
    """
    now = ports.clock.now()
    account = ServiceAccount(
        id=new_id(),
        org_id=None,
        name=request.name,
        owner_id=request.owner_id or caller.user_id,
        role=None,
        scopes=check_scopes(request.scopes, of_platform=True),
        granted=parse_capabilities(request.granted, None),
        created_by=caller.user_id,
        created_at=now,
        updated_at=now,
    )
    async with ports.storage.transaction(by=caller) as tx:
        await tx.accounts.lock_platform_owners()
        await platform.lock_rights(tx, caller)
        if await tx.service_accounts.count(None) >= MAX_ACCOUNTS:
            raise TooManyServiceAccounts
        await _require_owner(tx, account)
        await tx.service_accounts.add(account)
        tx.record(events.service_account_created(account))
        return await tx.service_accounts.by_id(None, account.id) or refuse(ServiceAccountNotFound)


async def list_page(ports: Ports, page: Page) -> PageResult[ListedServiceAccount]:
    """Return a page of the platform's service accounts, newest first."""
    async with ports.storage.reading() as read:
        return await read.service_accounts.page(None, page)


async def find(ports: Ports, account_id: UUID) -> ListedServiceAccount:
    """Return a service account of the platform. Raises: ServiceAccountNotFound."""
    async with ports.storage.reading() as read:
        return await read.service_accounts.by_id(None, account_id) or refuse(ServiceAccountNotFound)


async def update(ports: Ports, caller: Person, account_id: UUID, changes: PlatformServiceAccountChanges) -> ListedServiceAccount:
    """Change a service account of the platform. The change counts from its next request on.

    Raises: NoServiceAccountChanges, ServiceAccountScopeUnknown, CapabilityNotGrantable,
    OwnerNotPlatformOwner; the errors of `_lock_for`.
    """
    if changes == PlatformServiceAccountChanges():
        raise NoServiceAccountChanges
    async with ports.storage.transaction(by=caller) as tx:
        old = await _lock_for(tx, caller, account_id)
        new = replace(
            old,
            name=old.name if isinstance(changes.name, Keep) else changes.name,
            owner_id=old.owner_id if isinstance(changes.owner_id, Keep) else changes.owner_id,
            scopes=old.scopes if isinstance(changes.scopes, Keep) else check_scopes(changes.scopes, of_platform=True),
            granted=old.granted if isinstance(changes.granted, Keep) else parse_capabilities(changes.granted, None),
        )
        if new.owner_id != old.owner_id:
            await _require_owner(tx, new)
        if new != old:
            new = replace(new, updated_at=ports.clock.now())
            await tx.service_accounts.save(new)
            tx.record(events.service_account_updated(old, new))
        return await tx.service_accounts.by_id(None, account_id) or refuse(ServiceAccountNotFound)


async def delete(ports: Ports, caller: Person, account_id: UUID) -> None:
    """Delete a service account of the platform with its credentials. Its next request is refused.

    Raises: the errors of `_lock_for`.
    """
    async with ports.storage.transaction(by=caller) as tx:
        account = await _lock_for(tx, caller, account_id)
        await tx.service_accounts.remove(None, account.id)
        tx.record(events.service_account_deleted(account))


async def create_credential(ports: Ports, caller: Person, account_id: UUID, request: NewCredential) -> tuple[Credential, str | None]:
    """Create a credential of a service account. Return it, with its text if it is a secret, which cannot be read again.

    Raises: the errors of `_lock_for` and `credentials.add`.
    """
    async with ports.storage.transaction(by=caller) as tx:
        account = await _lock_for(tx, caller, account_id)
        credential, secret = await credentials.add(ports, tx, None, account.id, request, caller.user_id)
        tx.record(events.credential_created(account, credential))
    return credential, secret


async def list_credentials(ports: Ports, account_id: UUID) -> list[Credential]:
    """Return the credentials of a service account of the platform, newest first. Raises: ServiceAccountNotFound."""
    async with ports.storage.reading() as read:
        await read.service_accounts.by_id(None, account_id) or refuse(ServiceAccountNotFound)
        return await read.credentials.of_client(None, account_id)


async def revoke_credential(ports: Ports, caller: Person, account_id: UUID, credential_id: UUID) -> None:
    """Revoke a credential of a service account. Access tokens that it got are refused from the next request on.

    Raises: CredentialNotFound; the errors of `_lock_for`.
    """
    async with ports.storage.transaction(by=caller) as tx:
        account = await _lock_for(tx, caller, account_id)
        credential = await credentials.remove(tx, None, account.id, credential_id)
        tx.record(events.credential_revoked(account, credential))


async def _lock_for(tx: Transaction, caller: Person, account_id: UUID) -> ServiceAccount:
    """Keep the caller a platform owner, and lock this service account.

    Raises: ServiceAccountNotFound; the errors of `platform.lock_rights`.
    """
    await platform.lock_rights(tx, caller)
    return await tx.service_accounts.lock(None, account_id) or refuse(ServiceAccountNotFound)


async def _require_owner(tx: Transaction, account: ServiceAccount) -> None:
    """Check that the owner of an account is a platform owner. Raises: OwnerNotPlatformOwner."""
    if not await tx.accounts.lock_platform_owner(account.owner_id):
        raise OwnerNotPlatformOwner
