"""Use cases in which platform owners manage a user's access: its details, its end, and password resets."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from core.accounts import events as account_events
from core.accounts import mfa, security_notices
from core.accounts.model import email_queue, platform
from core.accounts.model.accounts import Account
from core.accounts.model.devices import ListedDevice
from core.accounts.platform import lock_account, record_with_reason
from core.applications.model.users import LinkedIdentity
from core.authentication import events
from core.authentication.model.sessions import LiveSession
from core.kernel import callers, errors, roles
from core.kernel.values import PageResult
from core.tenancy import grants
from ports import Ports
from ports.storage import Transaction

# A user rarely has more. The numbers of all sessions and memberships are still complete.
MAX_LISTED_SESSIONS: Final = 100
MAX_LISTED_DEVICES: Final = 100


class AccountGetsNoReset(errors.Invalid):
    """This account is deactivated or was deleted, so it gets no link. It must be opened again first."""


@dataclass(frozen=True, slots=True)
class UserDetails:
    """A user with everything that gives them access.

    `sessions` are the newest live sessions, with the total number. `devices` are the most recently used devices.
    `identities` are the accounts at identity providers that sign in to the platform itself.
    """

    user: platform.FoundUser
    account: Account
    mfa: platform.UserMfaStatus
    sessions: PageResult[LiveSession]
    devices: Sequence[ListedDevice]
    identities: Sequence[LinkedIdentity]
    may_remove_second_factor: bool  # only a recovery removes a protected second factor


async def find(ports: Ports, caller: callers.PlatformCaller, user_id: UUID) -> UserDetails:
    """Return a user with their memberships, sessions, devices and identities, and the status of their second factor."""
    now, session_id = ports.clock.now(), caller.session_id if isinstance(caller, callers.Person) else None
    async with ports.storage.reading() as read:
        account = await read.accounts.by_id(user_id) or errors.refuse(platform.AccountNotFound)
        users = await read.platform_users.search(1, user_id=user_id)
        return UserDetails(
            user=users[0] if users else errors.refuse(platform.AccountNotFound),
            account=account,
            mfa=await read.platform_users.mfa_status(user_id) or errors.refuse(platform.AccountNotFound),
            sessions=await read.sessions.list_live(user_id, MAX_LISTED_SESSIONS, now),
            devices=await read.devices.of_user(user_id, session_id, None, now, None, MAX_LISTED_DEVICES),
            identities=await read.identities.list_of_user(user_id, None),
            may_remove_second_factor=not await mfa.is_protected(read, user_id, now),
        )


async def end_sessions(ports: Ports, caller: callers.PlatformCaller, user_id: UUID, reason: str) -> None:
    """End all sessions, pending sign-ins and email sign-ins of a user.

    The trust of devices and the credentials stay, so the user can sign in again. The organizations
    of their confirmed memberships get an event and an audit entry, and the platform's log gets the
    reason.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        account = await lock_account(tx, caller, user_id)
        await tx.sessions.end_all(account.id, now)
        await tx.flows.forget_user(account.id)
        record_with_reason(tx, events.all_sessions_revoked(account.id), reason)


async def deactivate(ports: Ports, caller: callers.PlatformCaller, user_id: UUID, reason: str) -> bool:
    """Deactivate a user's account, and end everything that gives access to it. Return whether anything changed (security I-8).

    The service accounts of the user stop, and the roles above member that they gave are void (security R-4). The
    user gets an email, the organizations of their confirmed memberships get an event and an audit entry,
    and the platform's log gets the reason.

    Raises: CannotDeactivateSelf; NotAPlatformOwner; AccountNotFound; PlatformOwnerNotDeactivated; AccountAnonymized;
    Limited if the user has just become the owner of another organization.
    """
    if user_id == caller.actor_id:
        raise platform.CannotDeactivateSelf
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        # Only the service accounts of admins give roles above member, and only admins are listed for break glass. Set-up links need
        # `integrations.manage`. Lock order: organizations by id, then the account. A user who has just received these rights has not
        # used them yet.
        org_ids = sorted(await _list_organizations_of_giver(tx, user_id))
        for org_id in org_ids:
            await tx.organizations.lock(org_id)
        account = await lock_account(tx, caller, user_id)
        if not set(await _list_organizations_of_giver(tx, user_id)) <= set(org_ids):
            raise errors.Limited(1)
        if account.is_platform_owner:
            raise platform.PlatformOwnerNotDeactivated
        if account.platform_deactivated_at is not None:
            return False
        await tx.accounts.deactivate_by_platform(account.id, now)
        await tx.email_changes.cancel_pending(account.id, now)  # a thief could prove the address after the reactivation
        await tx.sessions.end_all(account.id, now)
        await tx.flows.forget_user(account.id)
        await tx.devices.distrust(account.id, now)
        await tx.service_accounts.end_going_on(account.id, None, now)
        await security_notices.end_all_credentials(tx, account.id, now)
        for org_id in org_ids:
            await grants.void_stopped_accounts(tx, org_id, account.id, now)
        await tx.email_queue.add(email_queue.new_email(email_queue.EmailKind.ACCOUNT_DEACTIVATED, account.email, now))
        record_with_reason(tx, account_events.account_deactivated(account.id), reason)
    return True


async def _list_organizations_of_giver(tx: Transaction, user_id: UUID) -> list[UUID]:
    memberships = await tx.organizations.by_member(user_id)
    rights = {organization.id: membership.rights for organization, membership in memberships}
    return [org_id for org_id, held in rights.items() if roles.is_admin(held) or roles.Capability.INTEGRATIONS_MANAGE in held]


async def send_password_reset(ports: Ports, caller: callers.PlatformCaller, user_id: UUID, reason: str) -> None:
    """Email a user a link to set a new password.

    Only the owner of the mailbox can use the link, so the caller gets no power over the account. The log gets the same
    entries as from `end_sessions`.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        account = await lock_account(tx, caller, user_id)
        if not account.is_usable:
            raise AccountGetsNoReset
        await tx.email_queue.add(email_queue.new_email(email_queue.EmailKind.RESET_PASSWORD, account.email, now))
        record_with_reason(tx, events.password_reset_sent_by_platform(account.id), reason)
