"""Entities, refusals and pure rules of `core.accounts.platform`."""

from __future__ import annotations

from dataclasses import dataclass

from core.kernel.errors import Invalid, NotFound


class PlatformOwnerExists(Invalid):
    """There is a platform owner already. Platform owners make further ones: POST /api/platform/owners."""


class AccountNotUsable(Invalid):
    """This account is deactivated or anonymized, so nobody can sign in to it. Choose another one."""


class AccountNotFound(NotFound):
    """There is no such account."""


class AccountNotVerified(Invalid):
    """This account has not proved its email address. Ask its owner to follow the link in the verification mail first."""


class NotPlatformOwner(NotFound):
    """This account is not one of a platform owner."""


class CannotDemoteYourself(Invalid):
    """Nobody can end their own rights as a platform owner. Ask another platform owner to do it."""


class LastPlatformOwner(Invalid):
    """This is the last platform owner, and there must be one. Make another one first: POST /api/platform/owners."""


@dataclass(frozen=True, slots=True)
class PlatformFigures:
    """What the gauges of organizations.md section 4.11 show; active users are accounts that are not deactivated."""

    active_users: int
    organizations: int
    mfa_enabled_users: int
