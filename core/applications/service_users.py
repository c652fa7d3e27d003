"""How the service API shows the service itself, and its users (security K-3, K-4).

An API key can act only on its service's users. A key's rights to an account depend on who created the account, and on
who else uses it (core.tenancy.model.members).
"""

from uuid import UUID

from core.accounts import accounts, email_changes
from core.accounts import events as accounts_events
from core.accounts.model import email_queue
from core.accounts.model.accounts import Account, AccountOrigin
from core.applications import api_keys, events, services
from core.applications.model import services as services_model
from core.applications.model import users
from core.applications.model.api_keys import ApiKeyInvalid
from core.applications.model.services import Service, SettingChanges
from core.kernel import roles, values
from core.kernel.callers import ServiceKey
from core.kernel.errors import refuse
from core.tenancy import members
from core.tenancy.model import organizations
from core.tenancy.model.members import require_power_over
from ports import Ports
from ports.storage import Transaction


async def list_users(ports: Ports, caller: ServiceKey, limit: int, offset: int) -> values.PageResult[users.ServiceUser]:
    """Return a page with the service's users. The earliest users come first."""
    async with ports.storage.reading() as read:
        return await read.service_users.page(caller.service.org_id, caller.service.id, limit, offset)


async def find(ports: Ports, caller: ServiceKey, user_id: UUID) -> users.ServiceUser:
    """Return the service's user with this id."""
    async with ports.storage.reading() as read:
        return await read.service_users.by_id(caller.service.org_id, caller.service.id, user_id) or refuse(users.ServiceUserNotFound)


async def find_or_create(ports: Ports, caller: ServiceKey, email: values.Email) -> users.ServiceUser:
    """Return the account with this email address, or create it and assign it to the service.

    An existing account is returned unchanged and is not assigned, even if the organization created it. No email is
    sent: a new account's user requests a reset link and sets a password.

    Raises: EmailNotFree if the address is reserved for its former account.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        organization, service = await api_keys.lock_organization_for(tx, caller, roles.Permission.WRITE_USERS, now)
        account, is_new = await accounts.find_or_add(tx, email, now, origin=AccountOrigin.API_KEY, org_id=organization.id)
        if is_new:
            tx.record(accounts_events.signed_up(account.id, service.org_id, service.id))
            tx.record(events.user_created(account.id, service))
            # The event `user.created` says this, too.
            is_assigned = await tx.assignments.add(organization.id, service.id, [account.id], users.EnrollmentOrigin.API_KEY, now)
            assert is_assigned, "deleting the service needs the lock on its organization"
    return _to_service_user(account)


async def change_email(ports: Ports, caller: ServiceKey, user_id: UUID, email: values.Email | values.Keep) -> users.ServiceUser:
    """Change a user's email address. The new address is unverified until the user proves it (security A-9, K-4).

    Links that were sent to the old address become invalid, and all sessions end. The old address is
    notified if it was verified. Nothing happens if `email` is KEEP or the current address.
    """
    if email is values.KEEP:
        return await find(ports, caller, user_id)
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        organization, service = await api_keys.lock_organization_for(tx, caller, roles.Permission.WRITE_USERS, now)
        membership = await tx.members.lock(organization.id, user_id)
        account = await _lock_account(tx, organization, service, user_id)
        if email == account.email:
            return _to_service_user(account)
        if membership is not None:
            require_power_over(await api_keys.authority_of(tx, caller), membership)
        control = await tx.accounts.account_control(account.id, organization.id)
        if not control.may_change_email or account.anonymized_at is not None:
            raise users.UserNotManaged
        await email_changes.change_at_once(tx, account, email, now)
        await tx.sessions.end_all(account.id, now)
        if account.email_verified_at is not None:
            await tx.email_queue.add(email_queue.new_email(email_queue.EmailKind.EMAIL_CHANGED, account.email, now))
        tx.record(events.email_changed(account.id, service))
    return users.ServiceUser(account.id, email, account.created_at)


async def delete(ports: Ports, caller: ServiceKey, user_id: UUID) -> None:
    """Delete the account if only this organization uses it. Otherwise remove the user from this service.

    A member's account is deleted only if the key's creator could remove the member now (security R-10).
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        organization, service = await api_keys.lock_organization_for(tx, caller, roles.Permission.DELETE_USERS, now)
        membership = await tx.members.lock(organization.id, user_id)
        account = await _lock_account(tx, organization, service, user_id)
        control = await tx.accounts.account_control(account.id, organization.id)
        if not (control.may_delete_account and (membership is None or await _may_remove_member(tx, caller, membership))):
            await tx.sessions.remove(account.id, now, service.id)
            await tx.service_users.remove(organization.id, service.id, account.id)
            await tx.logins.remove(account.id, service.id)
            await tx.audit.forget_in_service(organization.id, account.id, service.slug)
            tx.record(events.service_user_removed(organization.id, account.id, service.slug, permanently=False))
            return
        role = membership.role if membership is not None else None
        tx.record(events.service_user_removed(organization.id, account.id, service.slug, permanently=True, role=role))
        await members.delete_account(tx, organization.id, account.id, now)


async def _may_remove_member(tx: Transaction, caller: ServiceKey, membership: organizations.Membership) -> bool:
    authority = await api_keys.authority_of(tx, caller)
    return roles.Capability.MEMBERS_MANAGE in authority.rights and roles.may_act_on(authority, membership.authority)


async def _lock_account(tx: Transaction, organization: organizations.Organization, service: Service, user_id: UUID) -> Account:
    """Lock and return the account that uses the service.

    The check comes before the lock, so that a key cannot lock accounts that do not use its service. The result stays
    true: while the organization is locked, a user leaves the service only if the account is deleted.
    """
    await tx.service_users.by_id(organization.id, service.id, user_id) or refuse(users.ServiceUserNotFound)
    return await tx.accounts.lock(user_id) or refuse(users.ServiceUserNotFound)


def _to_service_user(account: Account) -> users.ServiceUser:
    return users.ServiceUser(account.id, account.email, account.created_at)


async def find_service(ports: Ports, caller: ServiceKey) -> Service:
    """Return the key's service."""
    async with ports.storage.reading() as read:
        return await read.services.by_id(caller.service.org_id, caller.service.id) or refuse(ApiKeyInvalid)


async def update_service(ports: Ports, caller: ServiceKey, settings: SettingChanges) -> Service:
    """Apply these settings to the key's service. `settings` must not contain a service type."""
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        _, old = await api_keys.lock_organization_for(tx, caller, roles.Permission.WRITE_SERVICE, now)
        return await services.save_changes(tx, old, services_model.apply_settings(old, settings), now)
