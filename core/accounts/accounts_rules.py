"""Entities, refusals and pure rules of `core.accounts.accounts`."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from core.kernel.errors import Conflict, Invalid, Unauthenticated
from core.kernel.values import Email, new_id

if TYPE_CHECKING:
    from uuid import UUID


class AccountOrigin(StrEnum):
    """Where an account was born (the terms of security.md)."""

    PLATFORM = "platform"
    API_KEY = "api_key"
    SCIM = "scim"
    SIGN_UP = "sign_up"


@dataclass(frozen=True, slots=True)
class Account:
    """A person's account. Times are UTC; `password_hash` is a PHC string, or None for an account without password."""

    id: UUID
    email: Email
    email_verified_at: datetime | None
    password_hash: str | None = field(repr=False)
    is_platform_owner: bool
    origin: AccountOrigin
    origin_org_id: UUID | None
    deactivated_at: datetime | None
    anonymized_at: datetime | None
    created_at: datetime
    first_verified_at: datetime | None  # stays when a change of address unverifies the account
    mfa_enabled_at: datetime | None = None  # since when the second factor is asked for

    @property
    def is_usable(self) -> bool:
        """Whether anybody may sign in to it at all (security.md A-4)."""
        return self.deactivated_at is None and self.anonymized_at is None


@dataclass(frozen=True, slots=True)
class AccountSummary:
    """Of an account, what is shown beside what belongs to it."""

    id: str
    email: str
    is_platform_owner: bool
    created_at: datetime


# What is shown where the account does not exist any more (organizations.md section 2.3).
DELETED_ACCOUNT: Final = AccountSummary("unknown", "deleted-user@unknown", is_platform_owner=False, created_at=datetime.fromtimestamp(0, UTC))


class EmailTaken(Conflict):
    """An account with this email address exists already. Sign in, or reset the password."""


class EmailNotFree(Invalid):
    """The email address belongs to another account."""


class PasswordTooShort(Invalid):
    """The password must have at least 8 characters."""


class PasswordTooLong(Invalid):
    """The password must have at most 128 characters, and at most 512 bytes in UTF-8."""


class PasswordTooCommon(Invalid):
    """The password is on the list of common passwords. Choose another one."""


class LinkInvalid(Invalid):
    """This link is not valid: it has expired or was already used. Ask for a new one."""


class PasswordAlreadySet(Invalid):
    """This account has a password. Change it with POST /api/user/change-password."""


class NoPasswordSet(Invalid):
    """This account has no password. Set one with POST /api/user/set-password."""


class CurrentPasswordWrong(Unauthenticated):
    """The current password is wrong."""


def new_account(
    email: Email,
    password_hash: str | None,
    now: datetime,
    *,
    verified: bool = False,
    origin: AccountOrigin = AccountOrigin.PLATFORM,
    org_id: UUID | None = None,
) -> Account:
    """An account born on the platform, or where else `origin` says at the organization `org_id`."""
    proved_at = now if verified else None
    return Account(
        id=new_id(),
        email=email,
        email_verified_at=proved_at,
        password_hash=password_hash,
        is_platform_owner=False,
        origin=origin,
        origin_org_id=org_id,
        deactivated_at=None,
        anonymized_at=None,
        created_at=now,
        first_verified_at=proved_at,
    )


def check_new_password(password: str, common: frozenset[str] = frozenset()) -> None:
    """Raises PasswordTooShort, PasswordTooLong or PasswordTooCommon (security.md A-1; decisions, point 67).

    Compared as it came: no trimming, no case folding, no rules of composition.
    """
    if len(password) < 8:
        raise PasswordTooShort
    check_password_length(password)
    if password in common:
        raise PasswordTooCommon


def check_password_length(password: str) -> None:
    """Raises PasswordTooLong, so that nobody pays for hashing megabytes."""
    if len(password) > 128 or len(password.encode()) > 512:
        raise PasswordTooLong
