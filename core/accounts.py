"""Accounts: registration, proof of the mailbox, passwords, the profile (identity.md sections 2.1, 4.1 and 4.2)."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Final
from uuid import UUID

from core import events, guesses, mfa
from core.access import AccountGone, enter
from core.errors import Conflict, Invalid, Unauthenticated, refuse
from core.guesses import Secret
from core.mails import MailKind, new_mail
from core.one_time_tokens import Purpose
from core.values import Email, digest, new_id

if TYPE_CHECKING:
    from core.access import Caller, Person
    from ports import Ports
    from ports.storage import Transaction


class Origin(StrEnum):
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
    origin: Origin
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
GONE: Final = AccountSummary("unknown", "deleted-user@unknown", is_platform_owner=False, created_at=datetime.fromtimestamp(0, UTC))


class EmailTaken(Conflict):
    """An account with this e-mail address exists already. Sign in, or reset the password."""


class EmailNotFree(Invalid):
    """The e-mail address belongs to another account."""


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
    origin: Origin = Origin.PLATFORM,
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


async def register(ports: Ports, caller: Caller, email: Email, password: str, org_slug: str | None = None) -> Account:
    """A new, unverified account, and a mail with a verification link to it (identity.md section 4.1), in the design of the organization
    `org_slug`.

    Raises EmailTaken and what check_new_password raises.
    """
    check_new_password(password, ports.policy.common_passwords)
    password_hash = await ports.passwords.hash(password)
    now = ports.clock.now()
    account = new_account(email, password_hash, now)
    async with ports.storage.transaction(by=caller) as tx:
        org_id = await _design(tx, org_slug)
        await tx.accounts.add(account)
        await tx.mails.queue(new_mail(MailKind.VERIFY_EMAIL, email, now, org_id=org_id))
        tx.record(events.signed_up(account.id))
    return account


async def find_or_add(
    tx: Transaction, email: Email, now: datetime, *, origin: Origin = Origin.PLATFORM, org_id: UUID | None = None
) -> tuple[Account, bool]:
    """The account with this address, locked, and whether it was born just now: there, unverified, without a password."""
    while True:
        if (found := await tx.accounts.lock_by_email(email)) is not None:
            return found, False
        born = new_account(email, None, now, origin=origin, org_id=org_id)
        if await tx.accounts.add_if_free(born):
            return born, True
        # Somebody else was faster, and has committed by now.


async def verify_email(ports: Ports, caller: Caller, token: str) -> Email:
    """The address that a verification link proves, from now on verified. Raises LinkInvalid; a link works once."""
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        account = await _redeem(tx, Purpose.VERIFY_EMAIL, token, now)
        await tx.accounts.mark_verified(account.id, now)
    return account.email


async def forgot_password(ports: Ports, caller: Caller, email: Email, org_slug: str | None = None) -> None:
    """Queue a reset link for whoever has this address, in the design of the organization `org_slug`.

    Whether anybody has the address is found out later, by the mailer (security.md B-2).
    """
    await _queue(ports, caller, MailKind.RESET_PASSWORD, email, org_slug)


async def resend_verification(ports: Ports, caller: Caller, email: Email) -> None:
    """Queue a verification link for whoever has this address and has not proved it yet."""
    await _queue(ports, caller, MailKind.VERIFY_EMAIL, email)


async def _queue(ports: Ports, caller: Caller, kind: MailKind, email: Email, org_slug: str | None = None) -> None:
    async with ports.storage.transaction(by=caller) as tx:
        org_id = await _design(tx, org_slug)
        await tx.mails.queue(new_mail(kind, email, ports.clock.now(), org_id=org_id))


async def _design(tx: Transaction, org_slug: str | None) -> UUID | None:
    """Whose design a mail has; an organization that is unknown or not active is passed over in silence (decisions, point 66).

    It is asked for before anything depends on the account, whoever asks (security.md B-2).
    """
    return None if org_slug is None else await tx.branding.active(org_slug)


async def reset_link_is_live(ports: Ports, token: str) -> bool:
    """Whether a reset link would work now; asking uses nothing up."""
    async with ports.storage.reading() as read:
        return await read.one_time_tokens.is_live(digest(token), Purpose.RESET_PASSWORD, ports.clock.now())


async def reset_password(ports: Ports, caller: Caller, token: str, new_password: str) -> None:
    """A new password by a reset link, which proves the mailbox too (identity.md section 3, security.md A-6 and A-7).

    Every session, refresh token, pre-auth token and device trust ends, and so does every other reset link. Raises LinkInvalid and
    what check_new_password raises.
    """
    check_new_password(new_password, ports.policy.common_passwords)
    if not await reset_link_is_live(ports, token):  # before the expensive hash; the answer that counts is the one below
        raise LinkInvalid
    password_hash = await ports.passwords.hash(new_password)
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        account = await _redeem(tx, Purpose.RESET_PASSWORD, token, now)
        # Whoever gave this address has not shown that the mailbox is theirs. Nothing they left behind may survive; where the account
        # was proved with another address before, its second factor stays, since a thief of the account may have changed the address.
        if account.first_verified_at is None:
            await shut(tx, account, now)
        elif account.email_verified_at is None:
            await tx.one_time_tokens.void(account.id, Purpose.VERIFY_EMAIL)
            await tx.identities.remove_all(account.id)
        await tx.one_time_tokens.void(account.id, Purpose.RESET_PASSWORD)
        await tx.sessions.end_all(account.id, now)
        await tx.pre_auths.remove_all(account.id)
        await tx.devices.distrust(account.id, now)
        await tx.accounts.mark_verified(account.id, now)
        await tx.accounts.set_password(account.id, password_hash, now)
        await tx.mails.queue(new_mail(MailKind.PASSWORD_CHANGED, account.email, now))
        tx.record(events.password_changed(account.id, "reset"))
        await tx.guesses.clear(Secret.PASSWORD, digest(account.email))


async def shut(tx: Transaction, account: Account, now: datetime) -> None:
    """Leave no way into a locked account, whoever may have one, but the password, which is the caller's to set (security.md A-7): no link
    of a mail, session, waiting sign-in, linked identity, second factor or trusted device."""
    for purpose in Purpose:
        await tx.one_time_tokens.void(account.id, purpose)
    await tx.sessions.end_all(account.id, now)
    await tx.identities.remove_all(account.id)
    await mfa.switch_off(tx, account, now)


async def _redeem(tx: Transaction, purpose: Purpose, token: str, now: datetime) -> Account:
    """The account that the token was made for, locked; the token is used up. Raises LinkInvalid."""
    hashed = digest(token)
    account = await tx.accounts.lock_by_token(hashed, purpose) or refuse(LinkInvalid)
    sent_to = await tx.one_time_tokens.redeem(hashed, purpose, now)
    # A token is bound to the address it was sent to: after a change of address the old mailbox opens nothing.
    if sent_to != account.email or not account.is_usable:
        raise LinkInvalid
    return account


async def own(ports: Ports, caller: Person) -> Account:
    """The caller's account. Raises AccountGone."""
    async with ports.storage.reading() as read:
        return await read.accounts.by_id(caller.user_id) or refuse(AccountGone)


async def change_email(ports: Ports, caller: Person, email: Email) -> Email:
    """The address after the change, which takes effect at once and is unverified until proved (security.md A-9).

    A verification link goes to the new address and a notice to the old one; older links die, all other sessions end. Nothing
    happens when it is the address that the account has. Raises EmailNotFree, AccountGone, SessionEnded.
    """
    if email == caller.email:
        return email
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        account = await enter(tx, caller, now)
        await readdress(tx, account, email, now)
        await tx.sessions.end_others(account.id, caller.session_id, now)
        await tx.mails.queue(new_mail(MailKind.VERIFY_EMAIL, email, now))
        await tx.mails.queue(new_mail(MailKind.EMAIL_CHANGED, account.email, now))
        tx.record(events.email_changed(account.id))
    return email


async def readdress(tx: Transaction, account: Account, email: Email, now: datetime) -> None:
    """Give a locked account another address, which is unverified: what was sent to the old one, and sign-ins that wait, are worth nothing
    any more. Which sessions end is the caller's to say. Raises EmailNotFree."""
    try:
        await tx.accounts.change_email(account.id, email, now)
    except EmailTaken:
        raise EmailNotFree from None  # the contract has 400 here and 409 at registration
    for purpose in Purpose:
        await tx.one_time_tokens.void(account.id, purpose)
    await tx.pre_auths.remove_all(account.id)


async def set_password(ports: Ports, caller: Person, new_password: str) -> None:
    """A first password for an account without one; ends nothing (decisions, point 47).

    Raises PasswordAlreadySet, AccountGone, SessionEnded.
    """
    check_new_password(new_password, ports.policy.common_passwords)
    async with ports.storage.reading() as read:
        account = await read.accounts.by_id(caller.user_id) or refuse(AccountGone)
    if account.password_hash is not None:
        raise PasswordAlreadySet
    password_hash = await ports.passwords.hash(new_password)
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        account = await enter(tx, caller, now)
        if account.password_hash is not None:  # read again under the lock: another request may have set one meanwhile
            raise PasswordAlreadySet
        await tx.accounts.set_password(account.id, password_hash, now)
        await tx.mails.queue(new_mail(MailKind.PASSWORD_CHANGED, account.email, now))
        tx.record(events.password_changed(account.id, "set"))


async def change_password(ports: Ports, caller: Person, current: str, new_password: str) -> None:
    """Another password for an account that has one; every other session and all device trust end, the caller's session stays (security.md
    A-8).

    Raises CurrentPasswordWrong (it counts as a wrong guess), TooManyGuesses, NoPasswordSet, AccountGone, SessionEnded.
    """
    check_new_password(new_password, ports.policy.common_passwords)
    check_password_length(current)
    async with ports.storage.reading() as read:
        account = await read.accounts.by_id(caller.user_id) or refuse(AccountGone)
    if account.password_hash is None:
        raise NoPasswordSet
    await guesses.charge(ports, Secret.PASSWORD, digest(account.email))
    if not await ports.passwords.verify(account.password_hash, current):
        raise CurrentPasswordWrong
    await guesses.clear(ports, Secret.PASSWORD, digest(account.email))  # it was right, whatever comes of it
    password_hash = await ports.passwords.hash(new_password)
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        locked = await enter(tx, caller, now)
        if locked.password_hash != account.password_hash:  # changed by somebody else while we were hashing
            raise CurrentPasswordWrong
        await tx.accounts.set_password(locked.id, password_hash, now)
        await tx.one_time_tokens.void(locked.id, Purpose.RESET_PASSWORD)
        await tx.sessions.end_others(locked.id, caller.session_id, now)
        await tx.pre_auths.remove_all(locked.id)
        await tx.devices.distrust(locked.id, now)
        await tx.mails.queue(new_mail(MailKind.PASSWORD_CHANGED, locked.email, now))
        tx.record(events.password_changed(locked.id, "change"))


async def erase(tx: Transaction, user_id: UUID) -> None:
    """Remove a locked account, a member of nothing, for good, with all that is about the person alone (decisions, point 111).

    What organizations did with the person stays in their logs. The address is free from now on; who takes it is somebody else.
    """
    await tx.sessions.remove(user_id)
    await tx.service_users.remove_everywhere(user_id)
    await tx.logins.remove(user_id)
    await tx.accounts.remove(user_id)
    await tx.audit.forget(user_id)  # last, for others may be waiting for the totals that it holds
