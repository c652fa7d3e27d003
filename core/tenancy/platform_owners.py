"""The platform owners: the first owner, and how users become platform owners and stop being owners (security I-1)."""

from datetime import datetime
from uuid import UUID

from core.accounts import events, mailbox, security_notices
from core.accounts.model import accounts, email_queue, platform
from core.accounts.model.attempt_limits import SecretKind
from core.accounts.platform import lock_target_account
from core.kernel.access import NotAPlatformOwner
from core.kernel.callers import Person
from core.kernel.causes import SYSTEM
from core.kernel.errors import Limited
from core.kernel.values import Email
from core.tenancy import connection_links, grants
from ports import Ports
from ports.storage import Transaction


async def create_first_owner(ports: Ports, email: Email, password: str) -> None:
    """Make `email` the first platform owner, verified, with this password (security I-6).

    If the address has an account, its password and sessions may belong to a squatter, so all access
    to it is revoked first.

    Raises: PlatformOwnerExists; AccountNotUsable.
    """
    async with ports.storage.reading() as read:
        if await read.accounts.platform_owner_exists():  # saves the expensive hash; checked again under the lock
            raise platform.PlatformOwnerExists
    # Last, because a start with the existing owner's password must not fail when the rules change.
    accounts.check_new_password(password, email, ports.policy.common_passwords)
    password_hash = await ports.passwords.hash(password)
    now = ports.clock.now()
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.accounts.lock_platform_owners()
        if await tx.accounts.platform_owner_exists():
            raise platform.PlatformOwnerExists
        existing = await tx.accounts.by_email(email)
        if existing is not None:
            await _lock_organizations_of(tx, existing.id)
        account = await tx.accounts.lock_by_email(email)
        if account is None:
            account = accounts.new_account(email, password_hash, now, verified=True)
            await tx.accounts.add(account)
        else:
            if not account.is_usable:
                raise platform.AccountNotUsable
            await mailbox.revoke_all_access(tx, account, now)
            await tx.accounts.set_password(account.id, password_hash, now)
            await tx.accounts.mark_verified(account.id, now)
        await make_owner(tx, account.id, now)
        await tx.attempt_limits.clear_of_account(SecretKind.PASSWORD, account.id, email)
        tx.record(events.platform_owner_promoted(account.id))


async def make_owner(tx: Transaction, user_id: UUID, now: datetime) -> None:
    """Make a user a platform owner.

    Groups give the new owner no roles any longer, and grants by such roles end (security R-11).

    The new owner's links to connections end, too (security S-12).
    """
    await tx.accounts.promote(user_id, now)
    await connection_links.remove_all(tx, user_id, now)
    for org_id in await _lock_organizations_of(tx, user_id):
        await grants.void_grants(tx, org_id, [user_id], now)


async def promote(ports: Ports, caller: Person, user_id: UUID, reason: str | None = None) -> None:
    """Make a user with a second factor a platform owner. A platform owner stays a platform owner (security I-1).

    Sessions that impersonate the user end (security I-3). The rights that organizations' groups gave the user end, too, with the grants
    that the user made with these rights (security R-11). Links between the user and connections end, with the sign-ins there. All platform
    owners get an email.

    Raises: AccountNotFound; NotAPlatformOwner; AccountNotUsable; AccountNotVerified; SecondFactorNeeded; Limited if the
    user has just joined another organization.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        await tx.accounts.lock_platform_owners()
        org_ids = await _lock_organizations_of(tx, user_id)
        account, caller_is_owner = await lock_target_account(tx, caller, user_id)
        if not caller_is_owner:
            raise NotAPlatformOwner
        if account is None:
            raise platform.AccountNotFound
        if not set(await _list_organizations_of(tx, user_id)) <= set(org_ids):
            raise Limited(1)
        if not account.is_usable:
            raise platform.AccountNotUsable
        if account.is_platform_owner:
            return
        if account.email_verified_at is None:
            raise platform.AccountNotVerified
        if not account.second_factors:
            raise platform.SecondFactorNeeded
        await make_owner(tx, account.id, now)
        await tx.impersonations.end(account.id, now)  # otherwise such sessions would work again after a demotion
        await _notify_owners(tx, email_queue.EmailKind.PLATFORM_OWNER_ADDED, caller, account, reason, now)
        tx.record(events.platform_owner_promoted(account.id, reason))


async def demote(ports: Ports, caller: Person, user_id: UUID, reason: str | None = None) -> None:
    """Revoke a platform owner's rights, and end the sessions in which they impersonate users (security I-1, I-3).

    All platform owners and the user get an email. If the only two platform owners demote each other at the
    same time, the second request fails with LastPlatformOwner.
    """
    if user_id == caller.user_id:
        raise platform.CannotDemoteYourself
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        await tx.accounts.lock_platform_owners()
        account, caller_is_owner = await lock_target_account(tx, caller, user_id)
        is_owner = account is not None and account.is_platform_owner
        # Checked before the caller's rights: a caller who was just demoted learns that only the
        # last owner is left.
        if is_owner and not await tx.accounts.other_platform_owner_exists(user_id):
            raise platform.LastPlatformOwner
        if not caller_is_owner:
            raise NotAPlatformOwner
        if account is None or not is_owner:
            raise platform.NotPlatformOwner
        await tx.accounts.demote(user_id, now)
        await tx.impersonations.end(user_id, now)
        await security_notices.end_credentials_of_platform(tx, user_id, now)
        await _notify_owners(tx, email_queue.EmailKind.PLATFORM_OWNER_REMOVED, caller, account, reason, now)
        tx.record(events.platform_owner_demoted(user_id, reason))


async def _notify_owners(
    tx: Transaction, kind: email_queue.EmailKind, caller: Person, account: accounts.Account, reason: str | None, now: datetime
) -> None:
    """Queue an email to all platform owners and to the user with the changed rights."""
    change = email_queue.OwnerChange(account.email, caller.email, reason or "").to_token()
    for address in sorted({*await tx.accounts.platform_owner_addresses(), account.email}):
        await tx.email_queue.add(email_queue.new_email(kind, address, now, token=change))


async def _list_organizations_of(tx: Transaction, user_id: UUID) -> list[UUID]:
    return sorted(organization.id for organization, _ in await tx.organizations.by_member(user_id))


async def _lock_organizations_of(tx: Transaction, user_id: UUID) -> list[UUID]:
    """Lock a user's organizations, and return their ids. Lock order: organizations by id, then the account."""
    org_ids = await _list_organizations_of(tx, user_id)
    for org_id in org_ids:
        await tx.organizations.lock(org_id)
    return org_ids
