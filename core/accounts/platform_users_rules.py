"""Entities, refusals and pure rules of `core.accounts.platform_users`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from core.accounts.mfa_rules import MfaStatus
from core.kernel.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from core.kernel.principals import Role
    from core.kernel.values import Email

# What the figures of the second factor are about (organizations.md section 4.6).
METRICS_PERIOD: Final = timedelta(days=7)

# What is looked through for alerts: long enough to have last night's in the morning.
ALERT_PERIOD: Final = timedelta(hours=24)
# Nobody reads more; where there are so many, something is wrong with all of them.
MAX_ALERTS: Final = 100
# Half of what one account may guess in a quarter of an hour (security.md M-2): people stop sooner, and a guesser who stays below that limit
# is still seen.
FAILURE_ALERT_THRESHOLD: Final = 5
# A code is for the day on which the telephone is lost, and the next thing then is to set up another one. Of ten, three on one day are more
# than that takes.
BACKUP_CODE_ALERT_THRESHOLD: Final = 3
# Whoever has got into an account of somebody else takes away the second factor first of all.
SHORTLY_AFTER_LOGIN: Final = timedelta(minutes=15)


class CannotRemoveOwnMfa(Invalid):
    """This is your own account. Switch two-factor authentication off with DELETE /api/user/mfa, or ask another platform owner."""


@dataclass(frozen=True, slots=True)
class UserOrganization:
    """An organization that a person is a member of, and as what."""

    id: UUID
    slug: str
    name: str
    role: Role


@dataclass(frozen=True, slots=True)
class FoundUser:
    """An account, as a search shows it. Times are UTC; the organizations are sorted by slug."""

    id: UUID
    email: Email
    is_platform_owner: bool
    mfa_enabled: bool
    created_at: datetime
    organizations: tuple[UserOrganization, ...]


@dataclass(frozen=True, slots=True)
class UserMfaStatus(MfaStatus):
    """How somebody's second factor stands, for others. Times are UTC."""

    user_id: UUID
    email: Email
    last_challenge_at: datetime | None  # the last time that a code was asked of the person and one was given, right or wrong


@dataclass(frozen=True, slots=True)
class MfaMetrics:
    """The second factor on the platform: accounts that are not deactivated, those of them that have it, and what happened lately."""

    total_users: int
    mfa_enabled_users: int
    backup_codes_used: int
    failures: int

    @property
    def adoption_rate(self) -> float:
        """In percent, with two decimals; 0 where there is nobody (decisions, point 243)."""
        return round(100 * self.mfa_enabled_users / self.total_users, 2) if self.total_users else 0.0


class MfaAlertType(StrEnum):
    """What somebody should look at (decisions, point 243)."""

    REPEATED_FAILURES = "repeated_failures"  # so many wrong codes
    BACKUP_CODE_BURST = "backup_code_burst"  # so many backup codes used
    DISABLED_AFTER_LOGIN = "disabled_after_login"  # the second factor was switched off right after a login


@dataclass(frozen=True, slots=True)
class MfaAlert:
    """Something about the second factor of a person that may be the doing of somebody else. `detected_at` is when the last of it happened,
    in UTC; `details` can be shown as JSON."""

    user_id: UUID
    email: Email
    type: MfaAlertType
    details: Mapping[str, Any]
    detected_at: datetime
