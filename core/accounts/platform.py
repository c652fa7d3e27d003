"""Platform owners' rights in a transaction, the users that they manage (decisions 241, 243), and the platform's metrics.

`core.accounts.platform` has platform owners' use cases for other users' accounts.
`core.tenancy.platform_owners` makes users platform owners.
"""

from collections.abc import Sequence
from itertools import chain
from uuid import UUID

from core.accounts import events, mfa
from core.accounts.model import email_queue, platform
from core.accounts.model.accounts import Account
from core.kernel import callers, errors, event_catalog
from core.kernel.access import NotAPlatformOwner
from core.kernel.event_catalog import Event
from core.kernel.values import Email
from ports import Ports
from ports.storage import Transaction


async def lock_rights(tx: Transaction, caller: callers.PlatformCaller) -> None:
    """Keep the caller a platform owner, or a live service account of the platform, until the transaction ends (security Z-5).

    Raises: NotAPlatformOwner; ProgramStopped if the service account is no longer live.
    """
    if isinstance(caller, callers.Person):
        if not await tx.accounts.lock_platform_owner(caller.user_id):
            raise NotAPlatformOwner
    elif await tx.service_accounts.lock_live(None, caller.account_id, caller.credential_id) is None:
        raise errors.ProgramStopped


async def lock_target_account(tx: Transaction, caller: callers.PlatformCaller, user_id: UUID) -> tuple[Account | None, bool]:
    """Lock an account and the caller's rights. Return the account, and whether the caller is a platform owner (security Z-5).

    Lock order: accounts by id, then service accounts. Two platform owners who act on each other lock the same two rows (security Z-6).

    Raises: PlatformOwnerNeedsPerson; ProgramStopped if the caller is a service account that is no longer live.
    """
    if not isinstance(caller, callers.Person):
        account = await tx.accounts.lock(user_id)
        await lock_rights(tx, caller)
        if account is not None and account.is_platform_owner:
            raise platform.PlatformOwnerNeedsPerson
        return account, True
    if caller.user_id < user_id:
        caller_is_owner = await tx.accounts.lock_platform_owner(caller.user_id)
        return await tx.accounts.lock(user_id), caller_is_owner
    account = await tx.accounts.lock(user_id)
    return account, await tx.accounts.lock_platform_owner(caller.user_id)


async def get_figures(ports: Ports) -> platform.PlatformFigures:
    """Return the platform's current gauge values."""
    async with ports.storage.reading() as read:
        return await read.platform.figures()


async def count_due_jobs(ports: Ports) -> int:
    """Return how many background jobs are due."""
    async with ports.storage.reading() as read:
        return await read.platform.due_jobs(ports.clock.now())


async def search_users(
    ports: Ports, limit: int, *, email: str | None = None, user_id: UUID | None = None, after: UUID | None = None
) -> tuple[Sequence[platform.FoundUser], bool]:
    """Search all accounts, also deactivated accounts.

    Return them, newest first, and whether there are more.

    `email` is a part of the address, in upper or lower case. A domain matches in its Unicode and ASCII forms.
    The list begins after the account `after`, if any.
    """
    email_part = Email.parse_part(email or "") or None
    async with ports.storage.reading() as read:
        users = await read.platform_users.search(limit + 1, email=email_part, user_id=user_id, after=after)
    return users[:limit], len(users) > limit


async def list_owners(ports: Ports) -> Sequence[platform.FoundUser]:
    """Return all platform owners, the newest accounts first."""
    async with ports.storage.reading() as read:
        return await read.platform_users.owners()


async def find_user(ports: Ports, user_id: UUID) -> Account:
    """Return an account."""
    async with ports.storage.reading() as read:
        return await read.accounts.by_id(user_id) or errors.refuse(platform.AccountNotFound)


async def get_mfa_status(ports: Ports, user_id: UUID) -> platform.UserMfaStatus:
    """Return a user's second-factor status."""
    async with ports.storage.reading() as read:
        return await read.platform_users.mfa_status(user_id) or errors.refuse(platform.AccountNotFound)


async def remove_mfa(ports: Ports, caller: callers.PlatformCaller, user_id: UUID, reason: str) -> bool:
    """Remove a user's second factor and end all their sessions. Return whether it was enabled (security M-6, M-7).

    Passkeys stay, but are not asked for. If it was off, only a pending secret is deleted. Otherwise the user gets an email, the
    organizations of their confirmed memberships get an event and an audit entry, and the platform's
    log gets the reason.
    """
    if user_id == caller.actor_id:
        raise platform.CannotRemoveOwnMfa
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        account, caller_is_owner = await lock_target_account(tx, caller, user_id)
        if not caller_is_owner:
            raise NotAPlatformOwner
        if account is None:
            raise platform.AccountNotFound
        removed = await mfa.force_removal(tx, caller, account, now, reason=reason)
        for event in chain.from_iterable(events.mfa_disabled(account.id, factor, forced=True) for factor in removed):
            tx.record(event)
            if event.kind.audited:
                tx.record(event_catalog.to_platform_log(event, reason))
    return bool(removed)


async def reactivate_user(ports: Ports, caller: callers.PlatformCaller, user_id: UUID, reason: str) -> Account:
    """Undo a deactivation by a platform owner, and return the account as it is now (security I-8).

    Nothing else changes: an account that a directory has deactivated, too, stays closed. Otherwise the user gets an
    email. The log entries and events are the same as in `authentication.user_access.deactivate`.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        before = await lock_account(tx, caller, user_id)
        if before.platform_deactivated_at is None:
            return before
        await tx.accounts.reactivate_by_platform(before.id, now)
        account = await tx.accounts.lock(before.id) or errors.refuse(platform.AccountNotFound)
        if account.is_usable:
            await tx.email_queue.add(email_queue.new_email(email_queue.EmailKind.ACCOUNT_REACTIVATED, account.email, now))
        record_with_reason(tx, events.account_reactivated(account.id, whole_account=account.is_usable), reason)
    return account


async def lock_account(tx: Transaction, caller: callers.PlatformCaller, user_id: UUID) -> Account:
    """Lock a user's account, and the caller's rights."""
    account, caller_is_owner = await lock_target_account(tx, caller, user_id)
    if not caller_is_owner:
        raise NotAPlatformOwner
    if account is None:
        raise platform.AccountNotFound
    if account.anonymized_at is not None:
        raise platform.AccountAnonymized
    return account


def record_with_reason(tx: Transaction, event: Event, reason: str | None) -> None:
    """Record the event in the organizations' logs, and a copy with the reason in the platform's log."""
    tx.record(event)
    tx.record(event_catalog.to_platform_log(event, reason))


async def get_mfa_metrics(ports: Ports) -> platform.MfaMetrics:
    """Return how many users have a second factor, and how often some events happened in the last seven days."""
    async with ports.storage.reading() as read:
        return await read.platform_users.mfa_metrics(ports.clock.now() - platform.METRICS_PERIOD)


async def list_alerts(ports: Ports) -> Sequence[platform.MfaAlert]:
    """Return the alerts from the last 24 hours, the newest first, at most MAX_ALERTS."""
    async with ports.storage.reading() as read:
        return await read.platform_users.alerts(ports.clock.now() - platform.ALERT_PERIOD, platform.MAX_ALERTS)
