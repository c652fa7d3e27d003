"""Service accounts, managed by organizations or platform owners, and the API resource scopes that they get (RFC 6749 section 4.4).

Members manage their organization's service accounts. Platform owners manage the platform's service accounts. The
platform's service accounts have no role: their scopes and granted capabilities are the platform's. No use case here
accepts a service account as its caller.

API keys and SCIM tokens that a service account created keep working without it, so the owner can end them (security J-12).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from core.accounts import platform, security_notices
from core.accounts.model.email_queue import CreatedSecret
from core.kernel import callers, roles, values
from core.kernel.access import RoleInsufficient
from core.kernel.api_scopes import ApiScope
from core.kernel.callers import Member
from core.kernel.causes import SYSTEM
from core.kernel.errors import refuse
from core.kernel.roles import Capability
from core.programs import credentials, events
from core.programs.model import api_resources, service_accounts
from core.programs.model.credentials import Credential, NewCredential
from core.programs.model.service_accounts import ServiceAccountNotFound
from core.tenancy import grants, organizations
from core.tenancy.grants import report_created_secrets
from ports import Ports
from ports.storage import Transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class NewServiceAccount:
    """A service account to create.

    `role` is None on the platform. If `scopes` is None, the account has all scopes that the role allows, or all on the
    platform. If `owner_id` is None, the caller is the owner.
    """

    name: str
    role: str | None = None
    owner_id: UUID | None = None
    scopes: frozenset[ApiScope] | None = None
    granted: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceAccountChanges:
    """A service account's new values. Fields that are KEEP stay as they are."""

    name: str | values.Keep = values.KEEP
    owner_id: UUID | values.Keep = values.KEEP
    role: str | values.Keep = values.KEEP
    scopes: frozenset[ApiScope] | values.Keep | None = values.KEEP
    granted: Sequence[str] | values.Keep = values.KEEP


async def create(ports: Ports, caller: callers.Person, request: NewServiceAccount) -> service_accounts.ListedServiceAccount:
    """Create a service account. The service account has no credential yet."""
    org_id, now = _managed_organization(caller), ports.clock.now()
    scopes = service_accounts.check_scopes(request.scopes, of_platform=org_id is None)
    async with ports.storage.transaction(by=caller) as tx:
        rights = await _lock_rights(tx, caller)
        role = await _find_role(tx, org_id, request.role)
        account = service_accounts.ServiceAccount(
            id=values.new_id(),
            org_id=org_id,
            name=request.name,
            owner_id=request.owner_id or caller.user_id,
            role=None if role is None else role.name,
            scopes=scopes,
            granted=service_accounts.parse_capabilities(request.granted, service_accounts.rights_of_account(role)),
            created_by=caller.user_id,
            created_at=now,
            updated_at=now,
        )
        if not service_accounts.may_manage(rights, role):
            raise service_accounts.ServiceAccountAboveRole
        if account.granted and not service_accounts.may_grant(rights):
            raise service_accounts.OnlyOwnersGrant
        _require_right_to_name(caller, rights, account.owner_id)
        if await tx.service_accounts.count(org_id) >= service_accounts.MAX_ACCOUNTS:
            raise service_accounts.TooManyServiceAccounts
        await _require_owner(tx, account, role)
        await tx.service_accounts.add(account)
        tx.record(events.service_account_created(account))
        return await tx.service_accounts.by_id(org_id, account.id, now) or refuse(service_accounts.ServiceAccountNotFound)


async def list_page(ports: Ports, caller: callers.Person, page: values.Page) -> values.PageResult[service_accounts.ListedServiceAccount]:
    """Return a page with the service accounts, newest first."""
    async with ports.storage.reading() as read:
        return await read.service_accounts.page(_managed_organization(caller), page, ports.clock.now())


async def find(ports: Ports, caller: callers.Person, account_id: UUID) -> service_accounts.ListedServiceAccount:
    """Return a service account."""
    async with ports.storage.reading() as read:
        listed = await read.service_accounts.by_id(_managed_organization(caller), account_id, ports.clock.now())
        return listed or refuse(service_accounts.ServiceAccountNotFound)


async def update(
    ports: Ports, caller: callers.Person, account_id: UUID, changes: ServiceAccountChanges
) -> service_accounts.ListedServiceAccount:
    """Change a service account. The change counts from its next request on.

    A lower role takes away the granted capabilities that it does not have, and what the account gave above member. The same happens if the
    account loses a capability to give roles. If the account gets more rights, credentials end that users with a lower role or a former
    owner made: these users know the secrets.
    """
    if changes == ServiceAccountChanges():
        raise service_accounts.NoServiceAccountChanges
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        old, rights = await lock_for(tx, caller, account_id)
        old_role = await _find_role(tx, old.org_id, old.role)
        role = old_role if isinstance(changes.role, values.Keep) else await _find_role(tx, old.org_id, changes.role)
        if not service_accounts.may_manage(rights, role):
            raise service_accounts.ServiceAccountAboveRole
        new = _with_changes(old, changes, role, rights)
        old_rights = service_accounts.rights_of_account(old_role)
        has_wider_scopes = old.scopes is not None and (new.scopes is None or not new.scopes <= old.scopes)
        gets_more = has_wider_scopes or not new.granted <= old.granted or (role is not None and not role.rights <= old_rights)
        if new.owner_id != old.owner_id:
            _require_right_to_name(caller, rights, new.owner_id)
            if new.org_id is not None and new.id in await tx.service_accounts.givers(new.org_id, new.owner_id):
                raise service_accounts.OwnerCannotOwnServiceAccount
            if old.ends_at is not None:  # the former owner may know its secrets (security J-12)
                await tx.credentials.end_of_former_owner(old.org_id, old.id, old.owner_id, old.ends_at)
                new = replace(new, ends_at=None)
        elif gets_more:
            require_lasting_account(old, now)
        if new.owner_id != old.owner_id or (new.role != old.role and (gets_more or old.ends_at is None)):
            await _require_owner(tx, new, role)
        if new != old:
            await tx.service_accounts.save(replace(new, updated_at=now))
            tx.record(events.service_account_updated(old, new))
            if new.org_id is not None:
                await _end_lost_grants(tx, new.org_id, old, new, (old_rights, service_accounts.rights_of_account(role)), now)
            if new.org_id is not None and role is not None and gets_more:
                await security_notices.end_credentials_of_raised(tx, new.org_id, account_id, role.rights, now)
        listed = await tx.service_accounts.by_id(old.org_id, account_id, now) or refuse(service_accounts.ServiceAccountNotFound)
        return replace(listed, taken_over=None if new.owner_id == old.owner_id else await _taken_over(tx, old, now))


async def _taken_over(tx: Transaction, old: service_accounts.ServiceAccount, now: datetime) -> service_accounts.TakenOverCredentials | None:
    """Return what became of the credentials of an account that got another owner."""
    credentials = await tx.credentials.of_client(old.org_id, old.id)
    live = [each for each in credentials if each.expires_at is None or each.expires_at > now]
    if not live:
        return service_accounts.TakenOverCredentials.ENDED
    if old.owner_id not in [each.created_by for each in live]:
        return None
    return service_accounts.TakenOverCredentials.KNOWN if old.ends_at is None else service_accounts.TakenOverCredentials.END_LATER


async def _end_lost_grants(
    tx: Transaction,
    org_id: UUID,
    old: service_accounts.ServiceAccount,
    new: service_accounts.ServiceAccount,
    rights: tuple[roles.Rights, roles.Rights],
    now: datetime,
) -> None:
    """End what the account gave with rights that it loses. `rights`: before and after the change."""
    if not old.granted <= new.granted:
        await grants.stop_unfounded(tx, org_id, now)
    if roles.loses_promotion(rights[0], old.granted, rights[1], new.granted):
        await grants.void_promotions(tx, org_id, [new.id], now)


def _with_changes(
    old: service_accounts.ServiceAccount, changes: ServiceAccountChanges, role: roles.Role | None, rights: roles.Rights
) -> service_accounts.ServiceAccount:
    """Return the account as a caller with these rights changes it."""
    if isinstance(changes.granted, values.Keep):
        granted = old.granted & frozenset(service_accounts.grantable_capabilities(service_accounts.rights_of_account(role)))
    else:
        granted = service_accounts.parse_capabilities(changes.granted, service_accounts.rights_of_account(role))
    if not granted <= old.granted and not service_accounts.may_grant(rights):
        raise service_accounts.OnlyOwnersGrant
    return replace(
        old,
        name=old.name if isinstance(changes.name, values.Keep) else changes.name,
        owner_id=old.owner_id if isinstance(changes.owner_id, values.Keep) else changes.owner_id,
        role=None if role is None else role.name,
        scopes=old.scopes
        if isinstance(changes.scopes, values.Keep)
        else service_accounts.check_scopes(changes.scopes, of_platform=old.org_id is None),
        granted=granted,
    )


async def end_now(ports: Ports, caller: callers.Member, account_id: UUID) -> bool:
    """End a service account that goes on after its owner has left. Return False for other service accounts, which stay as they are.

    The account's credentials and the roles that it gave end, even if the owner is back (security R-4).
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        account, _ = await lock_for(tx, caller, account_id)
        if account.ends_at is not None:
            await tx.service_accounts.end_going_on(account.owner_id, account.org_id, now, account.id)
            await grants.settle_ends(tx, caller.acts_in.id, account.owner_id, now)
            for credential in await tx.credentials.of_client(account.org_id, account.id):
                await tx.credentials.remove(account.org_id, account.id, credential.id)
                tx.record(events.credential_revoked(account, credential))
            await grants.void_promotions(tx, caller.acts_in.id, [account.id], now)
        return account.ends_at is not None


async def end_due(ports: Ports, holder: UUID) -> dict[str, int]:
    """End the roles that service accounts gave, and their owners' credentials, 72 hours after the owners have left.

    The accounts do not need this sweep: every request checks when its account ends. `holder` is not needed, because the
    organization is locked. The result is empty: the audit log has the ends.
    """
    while True:
        now = ports.clock.now()
        async with ports.storage.reading() as read:
            due = await read.service_accounts.next_end(now)
        if due is None:
            return {}
        async with ports.storage.transaction(by=SYSTEM) as tx:
            await tx.organizations.lock(due[0])
            await grants.settle_ends(tx, *due, now)


def require_lasting_account(account: service_accounts.ServiceAccount, now: datetime) -> None:
    """Check that a service account may get more than it has. Raises: ServiceAccountEnds if its owner has left."""
    if account.ends_at is not None and account.ends_at > now:
        raise service_accounts.ServiceAccountEnds


async def delete(ports: Ports, caller: callers.Person, account_id: UUID) -> None:
    """Delete a service account with its credentials.

    The account's next request is refused. Roles above member that the account gave end (security R-4).
    """
    async with ports.storage.transaction(by=caller) as tx:
        account, _ = await lock_for(tx, caller, account_id)
        await tx.service_accounts.remove(account.org_id, account.id)
        tx.record(events.service_account_deleted(account))
        if account.org_id is not None:
            now = ports.clock.now()
            await grants.void_promotions(tx, account.org_id, [account.id], now)
            await report_created_secrets(tx, account.org_id, account.id, account.name, now)


async def lock_for(tx: Transaction, caller: callers.Person, account_id: UUID) -> tuple[service_accounts.ServiceAccount, roles.Rights]:
    """Lock the caller's rights and a service account that they may manage. Return the account and the rights."""
    rights = await _lock_rights(tx, caller)
    account = await tx.service_accounts.lock(_managed_organization(caller), account_id) or refuse(service_accounts.ServiceAccountNotFound)
    if not service_accounts.may_manage(rights, await _find_role(tx, account.org_id, account.role)):
        raise service_accounts.ServiceAccountAboveRole
    return account, rights


async def _find_role(tx: Transaction, org_id: UUID | None, name: str | None) -> roles.Role | None:
    """Return the role with this name. A platform service account has no role."""
    if org_id is None and name is None:
        return None
    if org_id is None or name is None:
        raise service_accounts.ServiceAccountRoleUnknown
    return await tx.roles.find(org_id, name) or refuse(service_accounts.ServiceAccountRoleUnknown)


def _managed_organization(caller: callers.Person) -> UUID | None:
    """Return the id of the organization in which the caller manages service accounts, or None for the platform."""
    return caller.acts_in.id if isinstance(caller, callers.Member) else None


async def _lock_rights(tx: Transaction, caller: callers.Person) -> roles.Rights:
    """Lock the caller's organization, or the platform owners, and return the caller's rights there."""
    if isinstance(caller, callers.Member):
        return (await organizations.lock_organization_for(tx, caller, roles.Capability.SERVICE_ACCOUNTS_MANAGE))[1]
    await tx.accounts.lock_platform_owners()
    await platform.lock_rights(tx, caller)
    return roles.PLATFORM_RIGHTS


def _require_right_to_name(caller: callers.Person, rights: roles.Rights, owner_id: UUID) -> None:
    """Check that the caller may make this user a service account's owner.

    Without this check, a manager could name a user who stays, and keep the access through the secret after their own
    removal. Only an organization's owner names other users.
    """
    if owner_id == caller.user_id:
        return
    if not isinstance(caller, callers.Member):
        raise service_accounts.OwnerNotYourself
    if not service_accounts.may_grant(rights):
        raise service_accounts.OnlyOwnersNameOthers


async def _require_owner(tx: Transaction, account: service_accounts.ServiceAccount, role: roles.Role | None) -> None:
    """Check that the owner could create an account with this role."""
    if account.org_id is None:
        return  # the owner is the caller, whose rights are locked
    membership = await tx.members.lock(account.org_id, account.owner_id) or refuse(service_accounts.OwnerCannotOwnServiceAccount)
    owner = await tx.accounts.by_id(account.owner_id) or refuse(service_accounts.OwnerCannotOwnServiceAccount)
    if not owner.is_usable or not service_accounts.may_manage(membership.rights, role):
        raise service_accounts.OwnerCannotOwnServiceAccount


# Credentials


async def create_credential(
    ports: Ports, caller: callers.Person, account_id: UUID, request: NewCredential
) -> tuple[Credential, str | None]:
    """Create a credential for a service account. Return it, with its text if it is a secret, which cannot be read again."""
    async with ports.storage.transaction(by=caller) as tx:
        account, _ = await lock_for(tx, caller, account_id)
        require_lasting_account(account, ports.clock.now())
        credential, secret = await credentials.add(ports, tx, account.org_id, account.id, request, caller.user_id)
        tx.record(events.credential_created(account, credential))
    return credential, secret


async def list_credentials(ports: Ports, caller: callers.Person, account_id: UUID) -> list[Credential]:
    """Return a service account's credentials, newest first."""
    org_id = _managed_organization(caller)
    async with ports.storage.reading() as read:
        await read.service_accounts.by_id(org_id, account_id, ports.clock.now()) or refuse(service_accounts.ServiceAccountNotFound)
        return await read.credentials.of_client(org_id, account_id)


async def revoke_credential(ports: Ports, caller: callers.Person, account_id: UUID, credential_id: UUID) -> None:
    """Revoke a service account's credential. Access tokens that the credential got are refused from the next request on."""
    async with ports.storage.transaction(by=caller) as tx:
        account, _ = await lock_for(tx, caller, account_id)
        credential = await credentials.remove(tx, account.org_id, account.id, credential_id)
        tx.record(events.credential_revoked(account, credential))


async def list_resources(ports: Ports, caller: callers.Member, account_id: UUID) -> list[service_accounts.AccountResource]:
    """Return the API resources that a service account gets tokens for, by name."""
    async with ports.storage.reading() as read:
        await read.service_accounts.by_id(caller.acts_in.id, account_id, ports.clock.now()) or refuse(
            service_accounts.ServiceAccountNotFound
        )
        return await read.api_resources.of_account(caller.acts_in.id, account_id)


async def save_resource(
    ports: Ports, caller: callers.Member, account_id: UUID, resource_id: UUID, scopes: Sequence[str]
) -> service_accounts.AccountResource:
    """Give a service account these scopes at an API resource. The scopes replace the scopes that it had there.

    Raises: ApiResourceNotFound, NoResourceScopes, OwnScopeUnknown, RoleInsufficient; the errors of
    `service_accounts.lock_for`.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        account = await _lock_account_for(tx, caller, account_id)
        resource = await tx.api_resources.by_id(caller.acts_in.id, resource_id) or refuse(api_resources.ApiResourceNotFound)
        if not scopes:
            raise service_accounts.NoResourceScopes
        if len(set(scopes)) < len(scopes) or not set(scopes) <= set(resource.scope_names):
            raise api_resources.OwnScopeUnknown
        old = await tx.api_resources.granted_to_account(resource.org_id, resource.id, account_id)
        new = service_accounts.AccountResource(resource.id, resource.identifier, resource.name, resource.known_scopes(scopes))
        if new != old:
            await tx.api_resources.save_account(resource.org_id, account_id, new, now)
            if old is None or not set(new.scopes) <= set(old.scopes):
                require_lasting_account(account, now)
                await security_notices.end_credentials_of_raised(tx, resource.org_id, account_id, roles.NO_RIGHTS, now)
            tx.record(events.account_resource_updated(resource, account, new.scopes))
    return new


async def remove_resource(ports: Ports, caller: callers.Member, account_id: UUID, resource_id: UUID) -> None:
    """Take away a service account's scopes at an API resource.

    The service account gets no further tokens for the API resource.

    Raises: AccountResourceNotFound, RoleInsufficient; the errors of `service_accounts.lock_for`.
    """
    async with ports.storage.transaction(by=caller) as tx:
        account = await _lock_account_for(tx, caller, account_id)
        resource = await tx.api_resources.by_id(caller.acts_in.id, resource_id) or refuse(service_accounts.AccountResourceNotFound)
        if not await tx.api_resources.remove_account(resource.org_id, resource.id, account_id):
            raise service_accounts.AccountResourceNotFound
        tx.record(events.account_resource_updated(resource, account, ()))


async def _lock_account_for(tx: Transaction, caller: callers.Member, account_id: UUID) -> service_accounts.ServiceAccount:
    """Lock the service account for its change, as `service_accounts.lock_for` does. The caller may manage API resources, too."""
    account, rights = await lock_for(tx, caller, account_id)
    if roles.Capability.RESOURCES_MANAGE not in rights:
        raise RoleInsufficient
    return account


async def list_created(ports: Ports, caller: Member, account_id: UUID) -> Sequence[CreatedSecret]:
    """Return the live API keys and SCIM tokens that this service account created, oldest first. The service account may be deleted."""
    async with ports.storage.reading() as read:
        secrets = await read.created_secrets.of_creator(caller.acts_in.id, account_id, ports.clock.now())
        if not secrets and not await read.created_secrets.has_creator(caller.acts_in.id, account_id):
            raise ServiceAccountNotFound
    return secrets


async def end_created(ports: Ports, caller: Member, account_id: UUID) -> Sequence[CreatedSecret]:
    """End all API keys and SCIM tokens that this service account created, and return them."""
    async with ports.storage.transaction(by=caller) as tx:
        organization, _ = await organizations.lock_organization_for(tx, caller, Capability.ORGANIZATION_OWN)
        ended = await tx.created_secrets.end(organization.id, account_id)
        if not ended and not await tx.created_secrets.has_creator(organization.id, account_id):
            raise ServiceAccountNotFound
        for secret in ended:
            tx.record(events.created_secret_ended(organization.id, secret))
    return ended
