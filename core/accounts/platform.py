"""Platform owners' rights in a transaction, and the platform's metrics.

`core.accounts.platform_users` has platform owners' use cases for other users' accounts.
`core.tenancy.platform_owners` makes users platform owners.
"""

from uuid import UUID

from core.accounts.model.accounts import Account
from core.accounts.model.platform import (
    PlatformFigures,
    PlatformOwnerNeedsPerson,
)
from core.kernel.access import NotAPlatformOwner
from core.kernel.callers import Person, PlatformCaller
from core.kernel.errors import ProgramStopped
from ports import Ports
from ports.storage import Transaction


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
    """Return the platform's current gauge values."""
    async with ports.storage.reading() as read:
        return await read.platform.figures()


async def count_due_jobs(ports: Ports) -> int:
    """Return how many background jobs are due."""
    async with ports.storage.reading() as read:
        return await read.platform.due_jobs(ports.clock.now())
