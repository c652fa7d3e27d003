"""Proof that a user has the mailbox for an account's address (security A-7).

The proof is a reset link, the link or code from a sign-in by email, an address that an identity provider has verified,
or the token in an invitation email.
"""

from datetime import datetime

from core.accounts import email_changes, events, mfa, passkey_waits
from core.accounts.model import accounts
from core.accounts.model.email_queue import TokenPurpose
from core.accounts.model.profiles import NO_PROFILE
from ports.storage import Transaction


async def prove_mailbox(tx: Transaction, account: accounts.Account, now: datetime) -> accounts.Account | None:
    """Mark a locked account's address as verified, and return the account as it is now.

    If the account never had a verified address, another person may have registered it. Nothing that they left behind
    survives.

    An organization created a deactivated account, and its directory deactivated it. If the account has no credentials,
    or its address is not verified, it becomes the user's own account. The organization keeps its block. Return None for
    an anonymized account, and for any other deactivated account, such as an account that the platform deactivated. Then
    nothing changes.
    """
    if not account.is_usable:
        if not await tx.accounts.can_be_freed(account.id):
            return None
        await tx.accounts.reactivate(account.id, now)
        await tx.accounts.set_origin(account.id, accounts.AccountOrigin.PLATFORM, None, now)
        await record_release(tx, account)
    if account.first_verified_at is None or not account.is_usable:
        await revoke_all_access(tx, account, now, keeps_second=account.first_verified_at is not None)
    await tx.accounts.mark_verified(account.id, now)
    return await tx.accounts.lock(account.id)


async def prove_mailbox_by_sign_in(tx: Transaction, account: accounts.Account, now: datetime) -> accounts.Account | None:
    """Mark a locked account's unverified address as verified by a sign-in, and return the account as it is now.

    If the account had another verified address before, the second factor stays, as after a reset: a thief may have
    changed the address. Everything else ends, and the password is removed. Return None if the account is closed.
    """
    if account.is_unproven:
        await tx.one_time_tokens.void(account.id, TokenPurpose.VERIFY_EMAIL)
        await tx.one_time_tokens.void(account.id, TokenPurpose.RESET_PASSWORD)
        await email_changes.end_all(tx, account, now)
        await remove_unproven_ways(tx, account)
        await tx.sessions.end_all(account.id, now)
        await tx.flows.forget_user(account.id)
        await tx.devices.distrust(account.id, now)
        await tx.accounts.drop_password(account.id, now)
    return await prove_mailbox(tx, account, now)


async def remove_unproven_ways(tx: Transaction, account: accounts.Account) -> None:
    """Remove the ways in that the owner of a never proved address would share with the user who entered it.

    Passkeys that are the second factor stay as security keys: like an authenticator app, they count only beside a first factor, and
    the mailbox alone does not sign in.
    """
    await passkey_waits.end(tx, account, "mailbox")
    await tx.identities.remove_all(account.id)
    if account.passkey_second_at is None:
        await tx.passkeys.remove_all(account.id)
    else:
        await tx.passkeys.turn_into_security_keys(account.id)


async def record_release(tx: Transaction, account: accounts.Account) -> None:
    """If the organization that created the account still exists, record in its log that the account is no longer its own."""
    org_id = account.origin_org_id
    if org_id is not None and await tx.organizations.by_id(org_id) is not None:
        tx.record(events.released(org_id, account.id))


async def revoke_all_access(tx: Transaction, account: accounts.Account, now: datetime, *, keeps_second: bool = False) -> None:
    """Remove every way into a locked account (security A-7). `keeps_second`: the second factor stays, because it does not sign in alone.

    Ends email links and codes, address changes, sessions, pending sign-ins, linked identities, the password, passkeys,
    the second factor and trusted devices. Links to connections of organizations end with an address that is not
    verified. The profile is cleared, because another person may have written it.
    """
    for purpose in TokenPurpose:
        await tx.one_time_tokens.void(account.id, purpose)
    await email_changes.end_all(tx, account, now)
    await tx.sessions.end_all(account.id, now)
    await remove_unproven_ways(tx, account)
    if account.email_verified_at is None:  # otherwise a required connection would no longer bind the user (security SP-9)
        await tx.connection_identities.remove_all(account.id)
    if not keeps_second:
        await mfa.remove_factors(tx, account, now)
        await tx.passkeys.remove_all(account.id)
    await tx.flows.forget_user(account.id)
    await tx.devices.distrust(account.id, now)
    await tx.accounts.drop_password(account.id, now)
    if account.profile != NO_PROFILE:
        await tx.accounts.set_profile(account.id, NO_PROFILE, now)
