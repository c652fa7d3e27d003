"""Platform owners, and the users that they manage."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

from core.accounts.model.mfa import MfaStatus
from core.accounts.model.protection import HeldFactor, Protection
from core.kernel import errors
from core.kernel.roles import RoleName
from core.kernel.values import Email


class PlatformOwnerExists(errors.Invalid):
    """There already is a platform owner. Platform owners add others with POST /api/platform/owners."""


class AccountNotUsable(errors.Invalid):
    """This account is deactivated or anonymized, so it does not allow sign-ins. Choose another one."""


class AccountNotFound(errors.NotFound):
    """This account does not exist."""


class AccountNotVerified(errors.Invalid):
    """The email address of this account is not verified. Ask the user to open the link in the verification email first."""


class SecondFactorNeeded(errors.Invalid):
    """This account has no second factor, so it cannot be a platform owner. Ask the user to set one up first."""


class PlatformOwnerNeedsPerson(errors.Forbidden):
    """This user is a platform owner. Only another platform owner can do this, and no service account."""


class NotPlatformOwner(errors.NotFound):
    """This account is not a platform owner."""


class CannotDemoteYourself(errors.Invalid):
    """You cannot revoke your own rights as a platform owner. Ask another platform owner to do it."""


class LastPlatformOwner(errors.Invalid):
    """This is the last platform owner. Add another one first."""


@dataclass(frozen=True, slots=True)
class PlatformFigures:
    """The platform's gauge values (docs/reference/metrics.md)."""

    active_users: int  # accounts that are neither deactivated nor anonymized
    organizations: int
    mfa_enabled_users: int
    passkey_users: int
    password_alone_users: int


METRICS_PERIOD: Final = timedelta(days=7)

# Long enough to show last night's alerts in the morning.
ALERT_PERIOD: Final = timedelta(hours=24)
# With this many alerts, the cause is not a single account, and more lines do not help.
MAX_ALERTS: Final = 100
# Half the attempts that a single account has in 15 minutes (security M-2). Users give up sooner,
# and an attacker who stays below the limit is still reported.
FAILURE_ALERT_THRESHOLD: Final = 5
# Backup codes are for the day on which a user loses their phone. A code or two are enough to set up
# a new app, so three of the ten codes on a single day are suspicious.
BACKUP_CODE_ALERT_THRESHOLD: Final = 3
# An attacker who got into an account turns the second factor off first.
SHORTLY_AFTER_LOGIN: Final = timedelta(minutes=15)


class CannotRemoveOwnMfa(errors.Invalid):
    """This is your own account. Turn two-factor authentication off on its page, or ask another platform owner."""


class CannotDeactivateSelf(errors.Invalid):
    """You cannot deactivate your own account. Ask another platform owner."""


class PlatformOwnerNotDeactivated(errors.Invalid):
    """This user is a platform owner. Take this role from them first."""


class AccountAnonymized(errors.Invalid):
    """This account was anonymized, which is final."""


@dataclass(frozen=True, slots=True)
class UserOrganization:
    """An organization that a user is a member of, and their role."""

    id: UUID
    slug: str
    name: str
    role: RoleName


@dataclass(frozen=True, slots=True)
class FoundUser:
    """An account in search results. Times are UTC. The organizations are sorted by slug."""

    id: UUID
    email: Email
    is_platform_owner: bool
    mfa_enabled: bool
    protection: Protection  # without the policies of organizations
    factors: tuple[HeldFactor, ...]
    created_at: datetime
    deactivated_at: datetime | None
    deactivated_by_platform: bool
    erase_at: datetime | None  # set if the account was deleted
    organizations: tuple[UserOrganization, ...]


@dataclass(frozen=True, slots=True)
class UserMfaStatus(MfaStatus):
    """A user's second-factor status, as platform owners see it. Times are UTC."""

    user_id: UUID
    email: Email
    last_challenge_at: datetime | None  # the last time that the user entered a code, right or wrong


@dataclass(frozen=True, slots=True)
class MfaMetrics:
    """The use of second factors on the platform. Deactivated accounts are not counted as users."""

    total_users: int
    mfa_enabled_users: int
    backup_codes_used: int
    failures: int

    @property
    def adoption_rate(self) -> float:
        """The share of users with a second factor in percent, with two decimals; 0 without users."""
        return round(100 * self.mfa_enabled_users / self.total_users, 2) if self.total_users else 0.0


class MfaAlertType(StrEnum):
    """The kind of an alert about a second factor."""

    REPEATED_FAILURES = "repeated_failures"  # many wrong codes
    BACKUP_CODE_BURST = "backup_code_burst"  # many backup codes used
    DISABLED_AFTER_LOGIN = "disabled_after_login"  # the second factor was turned off right after a login


@dataclass(frozen=True, slots=True)
class MfaAlert:
    """Activity around a user's second factor that may be an attack."""

    user_id: UUID
    email: Email
    type: MfaAlertType
    details: Mapping[str, Any]  # can be encoded as JSON
    detected_at: datetime  # the time of the last event, in UTC
