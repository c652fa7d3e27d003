"""The platform's own people and figures: its owners, and what the gauges show (organizations.md sections 4.6 and 4.11; decisions,
point 244). What platform owners do about other people is in `core/platform_users.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.accounts import accounts, events
from core.accounts.accounts_rules import check_new_password, new_account
from core.accounts.attempt_limits_rules import SecretKind
from core.kernel.principals import SYSTEM, NotAPlatformOwner
from core.kernel.values import digest

if TYPE_CHECKING:
    from uuid import UUID

    from core.accounts.accounts_rules import Account
    from core.kernel.principals import Person
    from core.kernel.values import Email
    from ports import Ports
    from ports.storage import Transaction
from core.accounts.platform_rules import (
    AccountNotUsable,
    PlatformFigures,
    LastPlatformOwner,
    NotPlatformOwner,
    CannotDemoteYourself,
    AccountNotFound,
    AccountNotVerified,
    PlatformOwnerExists,
)


async def create_first_owner(ports: Ports, email: Email, password: str) -> None:
    """Make `email` the first platform owner, verified, with this password (security.md I-6; decisions, point 55).

    An account that has the address already is taken over whole: its password and sessions may be a squatter's. Raises
    PlatformOwnerExists once there is a platform owner, AccountNotUsable, and what check_new_password raises.
    """
    check_new_password(password, ports.policy.common_passwords)
    async with ports.storage.reading() as read:
        if await read.accounts.platform_owner_exists():  # before the expensive hash; the answer that counts is the one below
            raise PlatformOwnerExists
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
            await accounts.revoke_all_access(tx, account, now)
            await tx.accounts.set_password(account.id, password_hash, now)
            await tx.accounts.mark_verified(account.id, now)
        await tx.accounts.promote(account.id, now)
        await tx.attempt_limits.clear(SecretKind.PASSWORD, digest(email))


async def promote(ports: Ports, caller: Person, user_id: UUID) -> None:
    """Make somebody a platform owner; for one who is that already, nothing happens (security.md I-1).

    Sessions in which others act as this person end (I-3). Raises PersonNotFound, NotAPlatformOwner,
    AccountNotUsable, PersonNotVerified.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        await tx.accounts.lock_platform_owners()
        account, may = await lock_target_account(tx, caller, user_id)
        if not may:
            raise NotAPlatformOwner
        if account is None:
            raise AccountNotFound
        if not account.is_usable:
            raise AccountNotUsable
        if account.is_platform_owner:
            return
        if account.email_verified_at is None:
            raise AccountNotVerified
        await tx.accounts.promote(account.id, now)
        await tx.sessions.end_impersonations(account.id, now)  # or they would be worth something again after a demotion
        tx.record(events.platform_owner_promoted(account.id))


async def demote(ports: Ports, caller: Person, user_id: UUID) -> None:
    """End somebody's rights as a platform owner, and with them the sessions in which they act as others (security.md I-1 and I-3).

    Of two who do this to each other at the same time, the later one finds the last platform owner. Raises OwnRights, LastPlatformOwner,
    NotAPlatformOwner, NotAnOwner.
    """
    if user_id == caller.user_id:
        raise CannotDemoteYourself
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        await tx.accounts.lock_platform_owners()
        account, may = await lock_target_account(tx, caller, user_id)
        is_owner = account is not None and account.is_platform_owner
        # Asked before the caller's right: with that gone, this is what there is to say about the one who is left.
        if is_owner and not await tx.accounts.other_platform_owner_exists(user_id):
            raise LastPlatformOwner
        if not may:
            raise NotAPlatformOwner
        if not is_owner:
            raise NotPlatformOwner
        await tx.accounts.demote(user_id, now)
        await tx.sessions.end_impersonations(user_id, now)
        tx.record(events.platform_owner_demoted(user_id))


async def lock_target_account(tx: Transaction, caller: Person, user_id: UUID) -> tuple[Account | None, bool]:
    """The account, locked, and whether the caller is a platform owner now, who then stays one until the transaction ends (security.md Z-5).

    Two who do something to each other lock the same two rows, so whoever has the lesser id comes first (Z-6).
    """
    if caller.user_id < user_id:
        may = await tx.accounts.lock_platform_owner(caller.user_id)
        return await tx.accounts.lock(user_id), may
    account = await tx.accounts.lock(user_id)
    return account, await tx.accounts.lock_platform_owner(caller.user_id)


async def get_figures(ports: Ports) -> PlatformFigures:
    """The platform's gauges, counted now."""
    async with ports.storage.reading() as read:
        return await read.platform.figures()
