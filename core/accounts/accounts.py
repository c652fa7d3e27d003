"""Accounts: registration, proof of the mailbox, passwords, the profile (identity.md sections 2.1, 4.1 and 4.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.accounts import attempt_limits, events, mfa
from core.accounts.attempt_limits_rules import SecretKind
from core.accounts.email_queue_rules import EmailKind, new_email
from core.accounts.one_time_tokens import TokenPurpose
from core.accounts.own_account import lock_own_account
from core.kernel.errors import refuse
from core.kernel.principals import AccountGone
from core.kernel.values import Email, digest

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from core.kernel.principals import Caller, Person
    from ports import Ports
    from ports.storage import Transaction
from core.accounts.accounts_rules import (
    Account,
    CurrentPasswordWrong,
    EmailNotFree,
    EmailTaken,
    LinkInvalid,
    NoPasswordSet,
    AccountOrigin,
    PasswordAlreadySet,
    check_new_password,
    check_password_length,
    new_account,
)


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
        await tx.email_queue.add(new_email(EmailKind.VERIFY_EMAIL, email, now, org_id=org_id))
        tx.record(events.signed_up(account.id))
    return account


async def find_or_add(
    tx: Transaction, email: Email, now: datetime, *, origin: AccountOrigin = AccountOrigin.PLATFORM, org_id: UUID | None = None
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
        account = await _redeem(tx, TokenPurpose.VERIFY_EMAIL, token, now)
        await tx.accounts.mark_verified(account.id, now)
    return account.email


async def forgot_password(ports: Ports, caller: Caller, email: Email, org_slug: str | None = None) -> None:
    """Queue a reset link for whoever has this address, in the design of the organization `org_slug`.

    Whether anybody has the address is found out later, by the mailer (security.md B-2).
    """
    await _queue(ports, caller, EmailKind.RESET_PASSWORD, email, org_slug)


async def resend_verification(ports: Ports, caller: Caller, email: Email) -> None:
    """Queue a verification link for whoever has this address and has not proved it yet."""
    await _queue(ports, caller, EmailKind.VERIFY_EMAIL, email)


async def _queue(ports: Ports, caller: Caller, kind: EmailKind, email: Email, org_slug: str | None = None) -> None:
    async with ports.storage.transaction(by=caller) as tx:
        org_id = await _design(tx, org_slug)
        await tx.email_queue.add(new_email(kind, email, ports.clock.now(), org_id=org_id))


async def _design(tx: Transaction, org_slug: str | None) -> UUID | None:
    """Whose design a mail has; an organization that is unknown or not active is passed over in silence (decisions, point 66).

    It is asked for before anything depends on the account, whoever asks (security.md B-2).
    """
    return None if org_slug is None else await tx.branding.active_org_id(org_slug)


async def reset_link_is_live(ports: Ports, token: str) -> bool:
    """Whether a reset link would work now; asking uses nothing up."""
    async with ports.storage.reading() as read:
        return await read.one_time_tokens.is_live(digest(token), TokenPurpose.RESET_PASSWORD, ports.clock.now())


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
        account = await _redeem(tx, TokenPurpose.RESET_PASSWORD, token, now)
        # Whoever gave this address has not shown that the mailbox is theirs. Nothing they left behind may survive; where the account
        # was proved with another address before, its second factor stays, since a thief of the account may have changed the address.
        if account.first_verified_at is None:
            await revoke_all_access(tx, account, now)
        elif account.email_verified_at is None:
            await tx.one_time_tokens.void(account.id, TokenPurpose.VERIFY_EMAIL)
            await tx.identities.remove_all(account.id)
        await tx.one_time_tokens.void(account.id, TokenPurpose.RESET_PASSWORD)
        await tx.sessions.end_all(account.id, now)
        await tx.pre_auths.remove_all(account.id)
        await tx.devices.distrust(account.id, now)
        await tx.accounts.mark_verified(account.id, now)
        await tx.accounts.set_password(account.id, password_hash, now)
        await tx.email_queue.add(new_email(EmailKind.PASSWORD_CHANGED, account.email, now))
        tx.record(events.password_changed(account.id, "reset"))
        await tx.attempt_limits.clear(SecretKind.PASSWORD, digest(account.email))


async def revoke_all_access(tx: Transaction, account: Account, now: datetime) -> None:
    """Leave no way into a locked account, whoever may have one, but the password, which is the caller's to set (security.md A-7): no link
    of a mail, session, waiting sign-in, linked identity, second factor or trusted device."""
    for purpose in TokenPurpose:
        await tx.one_time_tokens.void(account.id, purpose)
    await tx.sessions.end_all(account.id, now)
    await tx.identities.remove_all(account.id)
    await mfa.remove_factor(tx, account, now)


async def _redeem(tx: Transaction, purpose: TokenPurpose, token: str, now: datetime) -> Account:
    """The account that the token was made for, locked; the token is used up. Raises LinkInvalid."""
    hashed = digest(token)
    account = await tx.accounts.lock_by_token(hashed, purpose) or refuse(LinkInvalid)
    sent_to = await tx.one_time_tokens.redeem(hashed, purpose, now)
    # A token is bound to the address it was sent to: after a change of address the old mailbox opens nothing.
    if sent_to != account.email or not account.is_usable:
        raise LinkInvalid
    return account


async def get_own(ports: Ports, caller: Person) -> Account:
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
        account = await lock_own_account(tx, caller, now)
        await change_account_email(tx, account, email, now)
        await tx.sessions.end_others(account.id, caller.session_id, now)
        await tx.email_queue.add(new_email(EmailKind.VERIFY_EMAIL, email, now))
        await tx.email_queue.add(new_email(EmailKind.EMAIL_CHANGED, account.email, now))
        tx.record(events.email_changed(account.id))
    return email


async def change_account_email(tx: Transaction, account: Account, email: Email, now: datetime) -> None:
    """Give a locked account another address, which is unverified: what was sent to the old one, and sign-ins that wait, are worth nothing
    any more. Which sessions end is the caller's to say. Raises EmailNotFree."""
    try:
        await tx.accounts.change_email(account.id, email, now)
    except EmailTaken:
        raise EmailNotFree from None  # the contract has 400 here and 409 at registration
    for purpose in TokenPurpose:
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
        account = await lock_own_account(tx, caller, now)
        if account.password_hash is not None:  # read again under the lock: another request may have set one meanwhile
            raise PasswordAlreadySet
        await tx.accounts.set_password(account.id, password_hash, now)
        await tx.email_queue.add(new_email(EmailKind.PASSWORD_CHANGED, account.email, now))
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
    await attempt_limits.count_attempt(ports, SecretKind.PASSWORD, digest(account.email))
    if not await ports.passwords.verify(account.password_hash, current):
        raise CurrentPasswordWrong
    await attempt_limits.clear(ports, SecretKind.PASSWORD, digest(account.email))  # it was right, whatever comes of it
    password_hash = await ports.passwords.hash(new_password)
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        locked = await lock_own_account(tx, caller, now)
        if locked.password_hash != account.password_hash:  # changed by somebody else while we were hashing
            raise CurrentPasswordWrong
        await tx.accounts.set_password(locked.id, password_hash, now)
        await tx.one_time_tokens.void(locked.id, TokenPurpose.RESET_PASSWORD)
        await tx.sessions.end_others(locked.id, caller.session_id, now)
        await tx.pre_auths.remove_all(locked.id)
        await tx.devices.distrust(locked.id, now)
        await tx.email_queue.add(new_email(EmailKind.PASSWORD_CHANGED, locked.email, now))
        tx.record(events.password_changed(locked.id, "change"))


async def delete_account(tx: Transaction, user_id: UUID) -> None:
    """Remove a locked account, a member of nothing, for good, with all that is about the person alone (decisions, point 111).

    What organizations did with the person stays in their logs. The address is free from now on; who takes it is somebody else.
    """
    await tx.sessions.remove(user_id)
    await tx.service_users.remove_everywhere(user_id)
    await tx.logins.remove(user_id)
    await tx.accounts.remove(user_id)
    await tx.audit.forget(user_id)  # last, for others may be waiting for the totals that it holds
