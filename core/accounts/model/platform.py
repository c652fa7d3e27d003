"""The platform's metrics, and the errors of changing platform owners."""

from __future__ import annotations

from dataclasses import dataclass

from core.kernel.errors import Forbidden, Invalid, NotFound


class PlatformOwnerExists(Invalid):
    """There already is a platform owner. Platform owners add others with POST /api/platform/owners."""


class AccountNotUsable(Invalid):
    """This account is deactivated or anonymized, so it does not allow sign-ins. Choose another one."""


class AccountNotFound(NotFound):
    """This account does not exist."""


class AccountNotVerified(Invalid):
    """The email address of this account is not verified. Ask the user to open the link in the verification email first."""


class SecondFactorNeeded(Invalid):
    """This account has no second factor, so it cannot be a platform owner. Ask the user to set one up first."""


class PlatformOwnerNeedsPerson(Forbidden):
    """This user is a platform owner. Only another platform owner can do this, and no service account."""


class NotPlatformOwner(NotFound):
    """This account is not a platform owner."""


class CannotDemoteYourself(Invalid):
    """You cannot revoke your own rights as a platform owner. Ask another platform owner to do it."""


class LastPlatformOwner(Invalid):
    """This is the last platform owner. Add another one first."""


@dataclass(frozen=True, slots=True)
class PlatformFigures:
    """The values of the platform's gauges (docs/reference/metrics.md)."""

    active_users: int  # accounts that are neither deactivated nor anonymized
    organizations: int
    mfa_enabled_users: int
