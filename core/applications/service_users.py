"""The service interface: who uses the service of an API key (identity.md sections 2.2 and 4.5; decisions, points 63 and 109 to 112;
security.md K-3 and K-4).

A key has a say about those who use its service, and about nobody else. What it may do to an account that others share follows from where
the account was born (core/origins.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.accounts import accounts
from core.accounts import events as accounts_events
from core.accounts.accounts_rules import Origin
from core.accounts.email_queue_rules import MailKind, new_mail
from core.applications import api_keys, events
from core.kernel.errors import refuse
from core.kernel.principals import Permission
from core.kernel.values import KEEP
from core.tenancy import members

if TYPE_CHECKING:
    from uuid import UUID

    from core.accounts.accounts_rules import Account
    from core.applications.services_rules import Service
    from core.kernel.principals import ServiceKey
    from core.kernel.values import Email, Keep, Listed
    from core.tenancy.organizations_rules import Organization
    from ports import Ports
    from ports.storage import Transaction
from core.applications.service_users_rules import NotManaged, ServiceUser, ServiceUserNotFound


async def listed(ports: Ports, caller: ServiceKey, limit: int, offset: int) -> Listed[ServiceUser]:
    """Who uses the service, for the longest time first."""
    async with ports.storage.reading() as read:
        return await read.service_users.page(caller.service.org_id, caller.service.id, limit, offset)


async def find(ports: Ports, caller: ServiceKey, user_id: UUID) -> ServiceUser:
    """One of them. Raises ServiceUserNotFound."""
    async with ports.storage.reading() as read:
        return await read.service_users.by_id(caller.service.org_id, caller.service.id, user_id) or refuse(ServiceUserNotFound)


async def create(ports: Ports, caller: ServiceKey, email: Email) -> ServiceUser:
    """Whoever has this address: an account that there is, of whatever tenant, is returned and nothing else; or else one is born, which uses
    the service from now on. No mail goes out; a reset link, asked for as ever, is the way in (decisions, point 63).

    Raises what api_keys.enter raises.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        organization, service = await api_keys.enter(tx, caller, Permission.WRITE_USERS, now)
        account, born = await accounts.find_or_add(tx, email, now, origin=Origin.API_KEY, org_id=organization.id)
        if born:
            there = await tx.end_users.add(service.id, account.id, now, signed_in=False)
            assert there, "whoever deletes the service holds its organization"
            tx.record(accounts_events.signed_up(account.id, service.org_id, service.id))
            tx.record(events.user_created(account.id, service))
    return _seen(account)


async def change_email(ports: Ports, caller: ServiceKey, user_id: UUID, email: Email | Keep) -> ServiceUser:
    """The person with another address, which is unverified until they prove it (security.md A-9, K-4).

    Links that went to the old address die, all sessions end, and the old address is told, if it was theirs. Nothing happens where no
    address is given, or the one that the account has. Raises ServiceUserNotFound, NotManaged, EmailNotFree, and what api_keys.enter raises.
    """
    if email is KEEP:
        return await find(ports, caller, user_id)
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        organization, service = await api_keys.enter(tx, caller, Permission.WRITE_USERS, now)
        account = await _lock(tx, organization, service, user_id)
        if email == account.email:
            return _seen(account)
        ties = await tx.accounts.ties(account.id, organization.id)
        if not ties.is_managed or ties.manages_here or account.anonymized_at is not None:
            raise NotManaged
        await accounts.readdress(tx, account, email, now)
        await tx.sessions.end_all(account.id, now)
        if account.email_verified_at is not None:
            await tx.mails.queue(new_mail(MailKind.EMAIL_CHANGED, account.email, now))
        tx.record(events.email_changed(account.id, service))
    return ServiceUser(account.id, email, account.created_at)


async def delete(ports: Ports, caller: ServiceKey, user_id: UUID) -> None:
    """Remove the person: for good if the account is nobody's but the organization's, and else from this service (decisions, point 110).

    Raises ServiceUserNotFound, and what api_keys.enter raises.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        organization, service = await api_keys.enter(tx, caller, Permission.DELETE_USERS, now)
        membership = await tx.members.lock(organization.id, user_id)
        account = await _lock(tx, organization, service, user_id)
        ties = await tx.accounts.ties(account.id, organization.id)
        if not ties.ends_with_its_use_here:
            await tx.sessions.remove(account.id, service.id)
            await tx.service_users.remove(organization.id, service.id, account.id)
            await tx.logins.remove(account.id, service.id)
            tx.record(events.service_user_removed(organization.id, account.id, service.slug, permanently=False))
            return
        role = membership.role if membership is not None else None
        tx.record(events.service_user_removed(organization.id, account.id, service.slug, permanently=True, role=role))
        await members.erase(tx, organization.id, account.id, now)


async def _lock(tx: Transaction, organization: Organization, service: Service, user_id: UUID) -> Account:
    """The account of somebody who uses the service, locked. Raises ServiceUserNotFound.

    Who uses it is asked first, so that a key locks no account that it has no say about; and that does not change while the organization is
    held, unless the account goes.
    """
    await tx.service_users.by_id(organization.id, service.id, user_id) or refuse(ServiceUserNotFound)
    return await tx.accounts.lock(user_id) or refuse(ServiceUserNotFound)


def _seen(account: Account) -> ServiceUser:
    return ServiceUser(account.id, account.email, account.created_at)
