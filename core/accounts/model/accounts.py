"""Accounts, and changes to their email address."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final
from uuid import UUID

from core.accounts.model import profiles, security_notices
from core.kernel import errors, proofs, values
from core.kernel.display import PRODUCT
from core.kernel.sign_in_policy.explanations import SignInNotAccepted
from core.kernel.sign_in_policy.rules import PROVIDER_PREFIX

MIN_PASSWORD_LENGTH: Final = 8
MAX_PASSWORD_LENGTH: Final = 128
MIN_LOCAL_PART: Final = 4  # shorter local parts are in too many words


class AccountOrigin(StrEnum):
    """How an account was created (docs/specification/security.md, Terms)."""

    PLATFORM = "platform"
    API_KEY = "api_key"
    SCIM = "scim"
    SIGN_UP = "sign_up"
    CONNECTION = "connection"  # a first sign-in through the organization's connection


@dataclass(frozen=True, slots=True)
class Account:
    """A user's account. Times are UTC."""

    id: UUID
    email: values.Email
    email_verified_at: datetime | None
    password_hash: str | None = field(repr=False)  # a PHC string; None for an account without a password
    is_platform_owner: bool
    origin: AccountOrigin
    origin_org_id: UUID | None
    deactivated_at: datetime | None  # by a directory, a platform owner, or both
    anonymized_at: datetime | None
    created_at: datetime
    first_verified_at: datetime | None  # kept when an address change makes the account unverified again
    mfa_enabled_at: datetime | None = None  # when an authenticator app became the second factor, or None
    platform_deactivated_at: datetime | None = None  # set while a deactivation by a platform owner stands
    passkey_count: int = 0
    security_key_count: int = 0
    passkey_second_at: datetime | None = None  # when the user made passkeys and security keys the second factor, or None
    passkey_wait_at: datetime | None = None  # when the user reported the passkeys as lost (`PasskeyWait`), or None
    closed_at: datetime | None = None  # when the account was deleted; its data is erased later
    profile: profiles.Profile = profiles.NO_PROFILE

    @property
    def key_count(self) -> int:
        """How many passkeys and security keys the account has."""
        return self.passkey_count + self.security_key_count

    @property
    def factors(self) -> tuple[proofs.Factor, ...]:
        """The account's factors, without linked accounts and backup codes."""
        mailbox = [] if self.email_verified_at is None else [proofs.Factor(proofs.FactorKind.MAILBOX, self.email_verified_at)]
        password = [] if self.password_hash is None else [proofs.Factor(proofs.FactorKind.PASSWORD)]
        since, is_required = self.passkey_second_at, self.passkey_second_at is not None
        counts = ((proofs.FactorKind.PASSKEY, self.passkey_count), (proofs.FactorKind.SECURITY_KEY, self.security_key_count))
        keys = [proofs.Factor(kind, since, is_required) for kind, count in counts if count > 0]
        app = [] if self.mfa_enabled_at is None else [proofs.Factor(proofs.FactorKind.TOTP, self.mfa_enabled_at)]
        return (*password, *mailbox, *keys, *app)

    def first_ways(self, providers: Iterable[str], *, email_is_on: bool) -> frozenset[str]:
        """Return the account's first factors, as sign-in policies name them.

        `providers` are the linked identity providers.

        A password and the mailbox sign in only at a verified address (security A-4).
        """
        ways = {PROVIDER_PREFIX + provider for provider in providers}
        if self.email_verified_at is not None:
            ways |= {proofs.Method.PASSWORD.value} if self.signs_in_by_password else set()
            ways |= {proofs.Method.EMAIL.value} if email_is_on else set()
        return frozenset(ways)

    @property
    def signs_in_by_password(self) -> bool:
        """Return whether the account has a password, and a verified address, without which no password signs in (security A-4)."""
        return self.password_hash is not None and self.email_verified_at is not None

    @property
    def second_factors(self) -> tuple[proofs.Factor, ...]:
        """The second factors, any of which a sign-in needs after a first factor. Without any, a first factor is enough."""
        return tuple(factor for factor in self.factors if factor.is_second)

    @property
    def is_usable(self) -> bool:
        """Return whether the account allows sign-ins at all (security A-4)."""
        return self.deactivated_at is None and self.anonymized_at is None

    @property
    def is_unproven(self) -> bool:
        """Return whether the user verified another address, and then changed to this address without verifying it.

        The account is theirs, but the address may belong to another person (security A-9).
        """
        return self.email_verified_at is None and self.first_verified_at is not None


@dataclass(frozen=True, slots=True)
class AccountSummary:
    """The account fields that other resources show, such as an organization's owner."""

    id: str
    email: str
    is_platform_owner: bool
    created_at: datetime


# The placeholder for an account that was deleted.
DELETED_ACCOUNT: Final = AccountSummary(
    "unknown", "deleted-user@unknown", is_platform_owner=False, created_at=datetime.fromtimestamp(0, UTC)
)


# The address shown in place of an account's if a service account acted.
SERVICE_ACCOUNT_EMAIL: Final = "service-account@internal"


@dataclass(frozen=True, slots=True)
class VerifiedEmail:
    """The address that a link verified, and its account. `is_change` if it replaced an earlier address."""

    user_id: UUID
    email: values.Email
    is_change: bool


class EmailTaken(errors.Conflict):
    """An account with this email address already exists. Sign in, or reset the password."""


class EmailNotFree(errors.Invalid):
    """This email address belongs to another account. Choose another one."""


@dataclass(frozen=True, slots=True)
class RequiredLength:
    """The least password length that an organization requires in the accounts that it controls."""

    organization: str  # its name
    length: int


class PasswordTooShort(errors.Invalid):
    """The password must have at least 8 characters. Choose a longer one."""

    def __init__(self, required: RequiredLength | None = None) -> None:
        """`required` is the length that it does not have, if an organization asks for more than the platform."""
        text = None if required is None else f"{required.organization} requires passwords of at least {required.length} characters."
        super().__init__(text and f"{text} Choose a longer one.")


class PasswordTooLong(errors.Invalid):
    """The password must have at most 128 characters, and at most 512 bytes in UTF-8. Choose a shorter one."""


class PasswordTooCommon(errors.Invalid):
    """This password is one of the most common ones, which attackers try first. Choose a longer one, for example four random words."""


class PasswordContainsEmail(errors.Invalid):
    """The password must not contain your email address, or the part before the @. Choose another one, for example four random words."""


class PasswordContainsProduct(errors.Invalid):
    """The password must not contain the name Gatehouse. Choose another one, for example four random words."""


class LinkInvalid(errors.Invalid):
    """This link is incomplete, has expired, or has already been used. Request a new one."""


class PasswordAlreadySet(errors.Invalid):
    """This account already has a password. Change it with POST /api/user/change-password."""


class NoPasswordSet(errors.Invalid):
    """This account has no password. Set one with POST /api/user/set-password."""


class PasswordNeeded(errors.Invalid):
    """You need your password to sign in. Add a passkey that works here before you remove it."""


class PasskeysNotEnough(errors.Invalid):
    """A sign-in policy does not accept your passkeys. Keep your password."""

    def __init__(self, source: str) -> None:
        """`source` names the organization or application that has the policy."""
        super().__init__(f"{source} does not accept passkeys. Keep your password.")


class RecoveryRequired(errors.Forbidden):
    """Your account lacks a factor that is required. Ask an admin to require less, or an admin or the operator for a recovery."""


class PasskeyNeeded(SignInNotAccepted):
    """Your account has a passkey, and this needs it. Confirm that it's you with the passkey, and repeat this."""


class PasswordAndMailboxNeeded(SignInNotAccepted):
    """To go on without your passkey, show your password and your mailbox. Confirm that it's you in these two ways, and repeat this."""


class LinkNeedsProof(errors.Forbidden):
    """Your account or a sign-in policy asks for more than your email address. Sign in as before, and link the identity provider there."""

    def __init__(self, source: str | None) -> None:
        """`source` names the organization or application that has the policy.

        None: the account has a passkey, which the sign-in must use.
        """
        super().__init__(
            f"An account with this email address already exists, and {source or 'it'} asks for more than the address. "
            "Sign in to the account as before, and link the identity provider there."
        )


class FactorRequired(errors.Invalid):
    """A sign-in policy requires this factor. Add another one first."""

    def __init__(self, source: str, needed: proofs.Strength, *, for_break_glass: bool = False) -> None:
        """`source` names the organization or application that has the policy. `needed`: the strength that it requires."""
        factors = {proofs.Strength.PHISHING_RESISTANT: "a passkey", proofs.Strength.TWO: "a second factor"}
        factor = factors.get(needed, "a way to sign in that it accepts, and this is your last one")
        if for_break_glass:
            advice = "Add another one first, or ask an admin to take you off the list."
            super().__init__(f"You are listed for break glass, for which {source} requires {factor}. {advice}")
        else:
            super().__init__(f"{source} requires {factor}. Add another one first.")


class CurrentPasswordWrong(errors.Unauthenticated):
    """The current password is wrong. Try again."""


def new_account(
    email: values.Email,
    password_hash: str | None,
    now: datetime,
    *,
    verified: bool = False,
    origin: AccountOrigin = AccountOrigin.PLATFORM,
    org_id: UUID | None = None,
    profile: profiles.Profile = profiles.NO_PROFILE,
) -> Account:
    """Return a new account. `org_id` is the organization that created it. It is None if `origin` is the platform."""
    verified_at = now if verified else None
    return Account(
        id=values.new_id(),
        email=email,
        email_verified_at=verified_at,
        password_hash=password_hash,
        is_platform_owner=False,
        origin=origin,
        origin_org_id=org_id,
        deactivated_at=None,
        anonymized_at=None,
        created_at=now,
        first_verified_at=verified_at,
        profile=profile,
    )


def check_new_password(password: str, email: values.Email, common: frozenset[str], required: RequiredLength | None = None) -> None:
    """Check a new password for an account with this address (security A-1).

    `common` has case-folded passwords. `required` is the length that an organization asks for. There are no
    composition rules, and the password is not trimmed.
    """
    if len(password) < MIN_PASSWORD_LENGTH:
        raise PasswordTooShort
    if required is not None and len(password) < required.length:
        raise PasswordTooShort(required)
    check_password_length(password)
    folded = password.casefold()
    if folded in common:
        raise PasswordTooCommon
    local_part = email.rpartition("@")[0]
    if email in folded or (len(local_part) >= MIN_LOCAL_PART and local_part in folded):
        raise PasswordContainsEmail
    if PRODUCT.casefold() in folded:
        raise PasswordContainsProduct


def check_password_length(password: str) -> None:
    """Refuse passwords that would make hashing expensive."""
    if len(password) > MAX_PASSWORD_LENGTH or len(password.encode()) > 512:
        raise PasswordTooLong


@dataclass(frozen=True, slots=True)
class PasswordReset:
    """The effects of a reset link that works now."""

    is_first_password: bool
    ends_sessions: bool  # False if the user has never signed in
    added: tuple[security_notices.AddedSignInMethod, ...] = ()  # after the sign-up
    keeps_factors: bool = False  # the account keeps further factors, or linked accounts that a policy needs
    is_enough: bool = True  # every policy in force accepts the new password alone, if the risk is not high
    least_length: int = MIN_PASSWORD_LENGTH  # for the new password
    restores_by_undo: bool = False  # a second factor from the last 72 hours stays, and an undo link restores an earlier factor


# The longest time to prove the new address. It is shorter than UNDO_TTL: the old address then has
# two days or more to undo a change that took effect.
PROOF_TTL: Final = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class EmailChange:
    """A requested change to an account's email address.

    Times are UTC.

    It is pending until the user proves the new address, cancels or replaces it, or it expires. Until
    `undo_until`, the old address can undo it, pending or not.
    """

    id: UUID
    user_id: UUID
    session_id: UUID  # the session that requested the change: it continues when the change takes effect
    old_email: values.Email  # that of the account after an undo
    new_email: values.Email
    requested_at: datetime
    expires_at: datetime
    undo_until: datetime | None  # None if the old address was not verified: its owner has no right to the account
    proved_at: datetime | None = None
    cancelled_at: datetime | None = None
    undone_at: datetime | None = None

    def is_pending(self, now: datetime) -> bool:
        """Return whether proving the new address still completes the change."""
        return self.proved_at is None and self.cancelled_at is None and now < self.expires_at


class NewEmailTaken(EmailNotFree):
    """Another account has this address. If it is yours too, sign in to it, delete it, and then request the change again."""


class TooManyEmailChanges(errors.Limited):
    """You have requested too many changes of your email address. Retry-After says when you can request the next one."""


def new_email_change(
    account: Account, undo_address: values.Email | None, session_id: UUID, email: values.Email, proof_ttl: timedelta, now: datetime
) -> EmailChange:
    """Return a pending change from the account's address to `email`.

    An undo gives the account `undo_address`.

    If this is None, the present address is not verified, and the change cannot be undone. Its owner could
    otherwise take over the account of a user who mistyped their address: undo the correction, and reset
    the password.
    """
    return EmailChange(
        id=values.new_id(),
        user_id=account.id,
        session_id=session_id,
        old_email=undo_address or account.email,
        new_email=email,
        requested_at=now,
        expires_at=now + min(proof_ttl, PROOF_TTL),
        undo_until=None if undo_address is None else now + security_notices.UNDO_TTL,
    )
