"""People in the hands of platform owners: finding them, and their second factor (organizations.md section 4.6; decisions, points 241 to
243). Who is a platform owner is decided in `core/platform.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from core import events, mfa
from core.access import NotAPlatformOwner
from core.errors import Invalid, refuse
from core.mails import MailKind, new_mail
from core.mfa import MfaEvent, Status
from core.platform import PersonNotFound, lock_person
from core.values import Email

if TYPE_CHECKING:
    from collections.abc import Sequence

    from core.access import Person, Role
    from core.accounts import Account
    from ports import Ports

# What the figures of the second factor are about (organizations.md section 4.6).
FIGURES_OF: Final = timedelta(days=7)

# What is looked through for alerts: long enough to have last night's in the morning.
ALERTS_OF: Final = timedelta(hours=24)
# Nobody reads more; where there are so many, something is wrong with all of them.
MAX_ALERTS: Final = 100
# Half of what one account may guess in a quarter of an hour (security.md M-2): people stop sooner, and a guesser who stays below that limit
# is still seen.
MANY_FAILURES: Final = 5
# A code is for the day on which the telephone is lost, and the next thing then is to set up another one. Of ten, three on one day are more
# than that takes.
MANY_BACKUP_CODES: Final = 3
# Whoever has got into an account of somebody else takes away the second factor first of all.
SOON_AFTER_LOGIN: Final = timedelta(minutes=15)


class OwnSecondFactor(Invalid):
    """This is your own account. Switch two-factor authentication off with DELETE /api/user/mfa, or ask another platform owner."""


@dataclass(frozen=True, slots=True)
class OrganizationOfPerson:
    """An organization that a person is a member of, and as what."""

    id: UUID
    slug: str
    name: str
    role: Role


@dataclass(frozen=True, slots=True)
class FoundPerson:
    """An account, as a search shows it. Times are UTC; the organizations are sorted by slug."""

    id: UUID
    email: Email
    is_platform_owner: bool
    mfa_enabled: bool
    created_at: datetime
    organizations: tuple[OrganizationOfPerson, ...]


@dataclass(frozen=True, slots=True)
class MfaStanding(Status):
    """How somebody's second factor stands, for others. Times are UTC."""

    user_id: UUID
    email: Email
    last_challenge_at: datetime | None  # the last time that a code was asked of the person and one was given, right or wrong


@dataclass(frozen=True, slots=True)
class MfaFigures:
    """The second factor on the platform: accounts that are not deactivated, those of them that have it, and what happened lately."""

    total_users: int
    mfa_enabled_users: int
    backup_codes_used: int
    failures: int

    @property
    def adoption_rate(self) -> float:
        """In percent, with two decimals; 0 where there is nobody (decisions, point 243)."""
        return round(100 * self.mfa_enabled_users / self.total_users, 2) if self.total_users else 0.0


class AlertType(StrEnum):
    """What somebody should look at (decisions, point 243)."""

    REPEATED_FAILURES = "repeated_failures"  # so many wrong codes
    BACKUP_CODE_BURST = "backup_code_burst"  # so many backup codes used
    DISABLED_AFTER_LOGIN = "disabled_after_login"  # the second factor was switched off right after a login


@dataclass(frozen=True, slots=True)
class Alert:
    """Something about the second factor of a person that may be the doing of somebody else. `detected_at` is when the last of it happened,
    in UTC; `details` can be shown as JSON."""

    user_id: UUID
    email: Email
    type: AlertType
    details: Mapping[str, Any]
    detected_at: datetime


async def search(ports: Ports, limit: int, *, email: str | None = None, user_id: UUID | None = None) -> Sequence[FoundPerson]:
    """Accounts of every kind, deactivated ones too, the newest first: those with this id, and with `email` as part of their address, in any
    case, and of its domain in either form (decisions, point 241)."""
    wanted = Email.parse_part(email or "") or None
    async with ports.storage.reading() as read:
        return await read.platform_users.search(limit, email=wanted, user_id=user_id)


async def find(ports: Ports, user_id: UUID) -> Account:
    """The account. Raises PersonNotFound."""
    async with ports.storage.reading() as read:
        return await read.accounts.by_id(user_id) or refuse(PersonNotFound)


async def mfa_status(ports: Ports, user_id: UUID) -> MfaStanding:
    """Raises PersonNotFound."""
    async with ports.storage.reading() as read:
        return await read.platform_users.mfa_status(user_id) or refuse(PersonNotFound)


async def remove_mfa(ports: Ports, caller: Person, user_id: UUID, reason: str) -> bool:
    """Take somebody's second factor away, which ends all their sessions; whether there was one (security.md M-6 and M-7).

    Where there was none, only a secret that was not confirmed is forgotten. The person is told by mail, the organizations in which the
    person has confirmed the membership by an event and an entry in their logs, and the reason stands in the platform's own log.
    Raises OwnSecondFactor, NotAPlatformOwner, PersonNotFound.
    """
    if user_id == caller.user_id:
        raise OwnSecondFactor
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        account, may = await lock_person(tx, caller, user_id)
        if not may:
            raise NotAPlatformOwner
        if account is None:
            raise PersonNotFound
        if not await mfa.switch_off(tx, account, now):
            return False
        await tx.sessions.end_all(account.id, now)
        await tx.mfa.log(account.id, [MfaEvent.FORCE_DISABLED], caller, now, reason=reason)
        await tx.mails.queue(new_mail(MailKind.MFA_REMOVED, account.email, now))
        for event in events.mfa_disabled(account.id, forced=True):
            tx.record(event)
            if event.kind.audited:
                tx.record(events.for_the_platform(event, reason))
    return True


async def mfa_figures(ports: Ports) -> MfaFigures:
    """How many people have a second factor, and what happened in the last seven days."""
    async with ports.storage.reading() as read:
        return await read.platform_users.mfa_figures(ports.clock.now() - FIGURES_OF)


async def alerts(ports: Ports) -> Sequence[Alert]:
    """What was suspicious in the last day, the newest first, at most MAX_ALERTS."""
    async with ports.storage.reading() as read:
        return await read.platform_users.alerts(ports.clock.now() - ALERTS_OF, MAX_ALERTS)
