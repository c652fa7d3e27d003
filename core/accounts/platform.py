"""The platform owners, and the platform's metrics.

`core.accounts.platform_users` has the use cases of platform owners for the accounts of other users.
"""

from datetime import datetime
from uuid import UUID

from core.accounts import events, mailbox
from core.accounts.model.accounts import Account, check_new_password, new_account
from core.accounts.model.attempt_limits import SecretKind
from core.accounts.model.email_queue import EmailKind, OwnerChange, new_email
from core.accounts.model.platform import (
    AccountNotFound,
    AccountNotUsable,
    AccountNotVerified,
    CannotDemoteYourself,
    LastPlatformOwner,
    NotPlatformOwner,
    PlatformFigures,
    PlatformOwnerExists,
    PlatformOwnerNeedsPerson,
    SecondFactorNeeded,
)
from core.accounts.notices import ended_secrets
from core.kernel.access import NotAPlatformOwner
from core.kernel.callers import Person, PlatformCaller
from core.kernel.causes import SYSTEM
from core.kernel.errors import ProgramStopped
from core.kernel.values import Email
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
            raise PlatformOwnerExists
    # Last, because a start with the password of the existing owner must not fail when the rules change.
    check_new_password(password, email, ports.policy.common_passwords)
    password_hash = await ports.passwords.hash(password)
    now = ports.clock.now()
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.accounts.lock_platform_owners()
        if await tx.accounts.platform_owner_exists():
            raise PlatformOwnerExists
        account = await tx.accounts.lock_by_email(email)
        if account is None:
            account = new_account(email, password_hash, now, verified=True)
            await tx.accounts.add(account)
        else:
            if not account.is_usable:
                raise AccountNotUsable
            await mailbox.revoke_all_access(tx, account, now)
            await tx.accounts.set_password(account.id, password_hash, now)
            await tx.accounts.mark_verified(account.id, now)
        await tx.accounts.promote(account.id, now)
        await tx.attempt_limits.clear_of_account(SecretKind.PASSWORD, account.id, email)
        tx.record(events.platform_owner_promoted(account.id))


async def promote(ports: Ports, caller: Person, user_id: UUID, reason: str | None = None) -> None:
    """Make a user with a second factor a platform owner. A platform owner stays one (security I-1).

    Sessions that impersonate the user end (security I-3). All platform owners get an email.

    Raises: AccountNotFound; NotAPlatformOwner; AccountNotUsable; AccountNotVerified; SecondFactorNeeded.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        await tx.accounts.lock_platform_owners()
        account, caller_is_owner = await lock_target_account(tx, caller, user_id)
        if not caller_is_owner:
            raise NotAPlatformOwner
        if account is None:
            raise AccountNotFound
        if not account.is_usable:
            raise AccountNotUsable
        if account.is_platform_owner:
            return
        if account.email_verified_at is None:
            raise AccountNotVerified
        if not account.second_factors:
            raise SecondFactorNeeded
        await tx.accounts.promote(account.id, now)
        await tx.impersonations.end(account.id, now)  # otherwise they would work again after a demotion
        await _notify_owners(tx, EmailKind.PLATFORM_OWNER_ADDED, caller, account, reason, now)
        tx.record(events.platform_owner_promoted(account.id, reason))


async def demote(ports: Ports, caller: Person, user_id: UUID, reason: str | None = None) -> None:
    """Revoke a platform owner's rights, and end the sessions in which they impersonate users (security I-1, I-3).

    All platform owners and the user get an email. If the only two platform owners demote each other at the
    same time, the second request fails with LastPlatformOwner.

    Raises: CannotDemoteYourself; LastPlatformOwner; NotAPlatformOwner; NotPlatformOwner.
    """
    if user_id == caller.user_id:
        raise CannotDemoteYourself
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        await tx.accounts.lock_platform_owners()
        account, caller_is_owner = await lock_target_account(tx, caller, user_id)
        is_owner = account is not None and account.is_platform_owner
        # Checked before the caller's rights: a caller who was just demoted learns that only the
        # last owner is left.
        if is_owner and not await tx.accounts.other_platform_owner_exists(user_id):
            raise LastPlatformOwner
        if not caller_is_owner:
            raise NotAPlatformOwner
        if account is None or not is_owner:
            raise NotPlatformOwner
        await tx.accounts.demote(user_id, now)
        await tx.impersonations.end(user_id, now)
        await ended_secrets.end_credentials_of_platform(tx, user_id, now)
        await _notify_owners(tx, EmailKind.PLATFORM_OWNER_REMOVED, caller, account, reason, now)
        tx.record(events.platform_owner_demoted(user_id, reason))


async def _notify_owners(tx: Transaction, kind: EmailKind, caller: Person, account: Account, reason: str | None, now: datetime) -> None:
    """Queue an email to all platform owners and to the user with the changed rights."""
    change = OwnerChange(account.email, caller.email, reason or "").to_token()
    for address in sorted({*await tx.accounts.platform_owner_addresses(), account.email}):
        await tx.email_queue.add(new_email(kind, address, now, token=change))


async def lock_rights(tx: Transaction, caller: PlatformCaller) -> None:
    """Keep the caller a platform owner, or a live service account of the platform, until the transaction ends (security Z-5).

    Raises: NotAPlatformOwner; ProgramStopped if the service account is no longer live.
    """
    if isinstance(caller, Person):
        if not await tx.accounts.lock_platform_owner(caller.user_id):
            raise NotAPlatformOwner
    elif await tx.service_accounts.lock_live(None, caller.account_id, caller.credential_id) is None:
        raise ProgramStopped


async def lock_target_account(tx: Transaction, caller: PlatformCaller, user_id: UUID) -> tuple[Account | None, bool]:
    """Lock an account and the caller's rights. Return the account, and whether the caller is a platform owner (security Z-5).

    Lock order: accounts by id, then service accounts. Two platform owners who act on each other lock the same two rows (security Z-6).

    Raises: PlatformOwnerNeedsPerson; ProgramStopped if the caller is a service account that is no longer live.
    """
    if not isinstance(caller, Person):
        account = await tx.accounts.lock(user_id)
        await lock_rights(tx, caller)
        if account is not None and account.is_platform_owner:
            raise PlatformOwnerNeedsPerson
        return account, True
    if caller.user_id < user_id:
        caller_is_owner = await tx.accounts.lock_platform_owner(caller.user_id)
        return await tx.accounts.lock(user_id), caller_is_owner
    account = await tx.accounts.lock(user_id)
    return account, await tx.accounts.lock_platform_owner(caller.user_id)


async def get_figures(ports: Ports) -> PlatformFigures:
    """Return the current values of the platform's gauges."""
    async with ports.storage.reading() as read:
        return await read.platform.figures()


async def count_due_jobs(ports: Ports) -> int:
    """Return the number of due background jobs."""
    async with ports.storage.reading() as read:
        return await read.platform.due_jobs(ports.clock.now())
