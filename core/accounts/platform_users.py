"""People in the hands of platform owners: finding them, and their second factor (organizations.md section 4.6; decisions, points 241 to
243). Who is a platform owner is decided in `core/platform.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.accounts import events, mfa
from core.accounts.email_queue_rules import EmailKind, new_email
from core.accounts.mfa_rules import MfaEvent
from core.accounts.platform import lock_target_account
from core.accounts.platform_rules import AccountNotFound
from core.kernel import event_catalog
from core.kernel.errors import refuse
from core.kernel.principals import NotAPlatformOwner
from core.kernel.values import Email

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from core.accounts.accounts_rules import Account
    from core.kernel.principals import Person
    from ports import Ports
from core.accounts.platform_users_rules import (
    ALERT_PERIOD,
    METRICS_PERIOD,
    MAX_ALERTS,
    MfaAlert,
    FoundUser,
    MfaMetrics,
    UserMfaStatus,
    CannotRemoveOwnMfa,
)


async def search(ports: Ports, limit: int, *, email: str | None = None, user_id: UUID | None = None) -> Sequence[FoundUser]:
    """Accounts of every kind, deactivated ones too, the newest first: those with this id, and with `email` as part of their address, in any
    case, and of its domain in either form (decisions, point 241)."""
    wanted = Email.parse_part(email or "") or None
    async with ports.storage.reading() as read:
        return await read.platform_users.search(limit, email=wanted, user_id=user_id)


async def find(ports: Ports, user_id: UUID) -> Account:
    """The account. Raises PersonNotFound."""
    async with ports.storage.reading() as read:
        return await read.accounts.by_id(user_id) or refuse(AccountNotFound)


async def get_mfa_status(ports: Ports, user_id: UUID) -> UserMfaStatus:
    """Raises PersonNotFound."""
    async with ports.storage.reading() as read:
        return await read.platform_users.mfa_status(user_id) or refuse(AccountNotFound)


async def remove_mfa(ports: Ports, caller: Person, user_id: UUID, reason: str) -> bool:
    """Take somebody's second factor away, which ends all their sessions; whether there was one (security.md M-6 and M-7).

    Where there was none, only a secret that was not confirmed is forgotten. The person is told by mail, the organizations in which the
    person has confirmed the membership by an event and an entry in their logs, and the reason stands in the platform's own log.
    Raises OwnSecondFactor, NotAPlatformOwner, PersonNotFound.
    """
    if user_id == caller.user_id:
        raise CannotRemoveOwnMfa
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        account, may = await lock_target_account(tx, caller, user_id)
        if not may:
            raise NotAPlatformOwner
        if account is None:
            raise AccountNotFound
        if not await mfa.remove_factor(tx, account, now):
            return False
        await tx.sessions.end_all(account.id, now)
        await tx.mfa.log(account.id, [MfaEvent.FORCE_DISABLED], caller, now, reason=reason)
        await tx.email_queue.add(new_email(EmailKind.MFA_REMOVED, account.email, now))
        for event in events.mfa_disabled(account.id, forced=True):
            tx.record(event)
            if event.kind.audited:
                tx.record(event_catalog.to_platform_log(event, reason))
    return True


async def get_mfa_metrics(ports: Ports) -> MfaMetrics:
    """How many people have a second factor, and what happened in the last seven days."""
    async with ports.storage.reading() as read:
        return await read.platform_users.mfa_metrics(ports.clock.now() - METRICS_PERIOD)


async def list_alerts(ports: Ports) -> Sequence[MfaAlert]:
    """What was suspicious in the last day, the newest first, at most MAX_ALERTS."""
    async with ports.storage.reading() as read:
        return await read.platform_users.alerts(ports.clock.now() - ALERT_PERIOD, MAX_ALERTS)
