"""The API resource scopes that service accounts get for themselves (RFC 6749 section 4.4)."""

from collections.abc import Sequence
from uuid import UUID

from core.accounts.notices import ended_secrets
from core.kernel.access import RoleInsufficient
from core.kernel.callers import Member
from core.kernel.errors import refuse
from core.kernel.roles import NO_RIGHTS, Capability
from core.programs import events, service_accounts
from core.programs.model.api_resources import ApiResourceNotFound, OwnScopeUnknown
from core.programs.model.service_accounts import (
    AccountResource,
    AccountResourceNotFound,
    NoResourceScopes,
    ServiceAccount,
    ServiceAccountNotFound,
)
from ports import Ports
from ports.storage import Transaction


async def list_resources(ports: Ports, caller: Member, account_id: UUID) -> list[AccountResource]:
    """Return the API resources that a service account gets tokens for, by name."""
    async with ports.storage.reading() as read:
        await read.service_accounts.by_id(caller.acts_in.id, account_id, ports.clock.now()) or refuse(ServiceAccountNotFound)
        return await read.api_resources.of_account(caller.acts_in.id, account_id)


async def save(ports: Ports, caller: Member, account_id: UUID, resource_id: UUID, scopes: Sequence[str]) -> AccountResource:
    """Give a service account these scopes at an API resource. The scopes replace the scopes that it had there.

    Raises: ApiResourceNotFound, NoResourceScopes, OwnScopeUnknown, RoleInsufficient; the errors of
    `service_accounts.lock_for`.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        account = await _lock_for(tx, caller, account_id)
        resource = await tx.api_resources.by_id(caller.acts_in.id, resource_id) or refuse(ApiResourceNotFound)
        if not scopes:
            raise NoResourceScopes
        if len(set(scopes)) < len(scopes) or not set(scopes) <= set(resource.scope_names):
            raise OwnScopeUnknown
        old = await tx.api_resources.granted_to_account(resource.org_id, resource.id, account_id)
        new = AccountResource(resource.id, resource.identifier, resource.name, resource.known_scopes(scopes))
        if new != old:
            await tx.api_resources.save_account(resource.org_id, account_id, new, now)
            if old is None or not set(new.scopes) <= set(old.scopes):
                service_accounts.require_lasting_account(account, now)
                await ended_secrets.end_credentials_of_raised(tx, resource.org_id, account_id, NO_RIGHTS, now)
            tx.record(events.account_resource_updated(resource, account, new.scopes))
    return new


async def remove(ports: Ports, caller: Member, account_id: UUID, resource_id: UUID) -> None:
    """Take away a service account's scopes at an API resource.

    The service account gets no further tokens for the API resource.

    Raises: AccountResourceNotFound, RoleInsufficient; the errors of `service_accounts.lock_for`.
    """
    async with ports.storage.transaction(by=caller) as tx:
        account = await _lock_for(tx, caller, account_id)
        resource = await tx.api_resources.by_id(caller.acts_in.id, resource_id) or refuse(AccountResourceNotFound)
        if not await tx.api_resources.remove_account(resource.org_id, resource.id, account_id):
            raise AccountResourceNotFound
        tx.record(events.account_resource_updated(resource, account, ()))


async def _lock_for(tx: Transaction, caller: Member, account_id: UUID) -> ServiceAccount:
    """Lock the service account for its change, as `service_accounts.lock_for` does. The caller may manage API resources, too."""
    account, rights = await service_accounts.lock_for(tx, caller, account_id)
    if Capability.RESOURCES_MANAGE not in rights:
        raise RoleInsufficient
    return account
