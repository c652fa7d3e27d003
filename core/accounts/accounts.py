"""Use cases for accounts: registration, email verification, the email address, and passwords by the platform's and organizations' rules."""

from collections.abc import Collection
from datetime import datetime
from uuid import UUID

from core.accounts import (
    added_methods,
    attempt_limits,
    email_changes,
    events,
    factor_changes,
    mailbox,
    security_notices,
    ways_in,
)
from core.accounts.factors import history as factor_history
from core.accounts.model import accounts, email_queue, profiles
from core.accounts.model.attempt_limits import SecretKind, session_subject
from core.accounts.model.security_notices import ASKS_FOR_FACTORS, NEEDS_RECOVERY, PASSWORD_REMOVED, RESTORES_BY_UNDO
from core.kernel import proofs, values
from core.kernel.access import AccountGone
from core.kernel.callers import Person
from core.kernel.causes import Caller
from core.kernel.errors import refuse
from ports import Ports, storage


async def register(
    ports: Ports,
    caller: Caller,
    email: values.Email,
    password: str,
    org_slug: str | None = None,
    sign_up: email_queue.LinkContinuation = email_queue.TO_ACCOUNT_PAGE,
    *,
    name: str = "",
) -> accounts.Account:
    """Create an unverified account and queue an email with a verification link.

    If the organization `org_slug` is active, the email has its branding, and it receives the event. It has no power
    over the account: a registration proves nothing (security A-7). `sign_up` and `name` come from our page; the API has
    neither.

    Raises: EmailTaken, NameInvalid.
    """
    profile = profiles.Profile(name=profiles.parse_name(name)) if name.strip() else profiles.NO_PROFILE
    accounts.check_new_password(password, email, ports.policy.common_passwords)
    password_hash = await ports.passwords.hash(password)
    now = ports.clock.now()
    account = accounts.new_account(email, password_hash, now, profile=profile)
    async with ports.storage.transaction(by=caller) as tx:
        org_id = None if org_slug is None else await tx.branding.keep_active_org(org_slug)
        await tx.accounts.add(account)
        await tx.email_queue.add(email_queue.new_email(email_queue.EmailKind.VERIFY_EMAIL, email, now, org_id=org_id, continuation=sign_up))
        tx.record(events.signed_up(account.id, org_id, sign_up.service_id))
    return account


async def find_or_add(
    tx: storage.Transaction,
    email: values.Email,
    now: datetime,
    *,
    origin: accounts.AccountOrigin = accounts.AccountOrigin.PLATFORM,
    org_id: UUID | None = None,
) -> tuple[accounts.Account, bool]:
    """Lock the account with this address, or create an unverified account without a password.

    Return the account, and whether it was created.

    Raises: EmailNotFree if the address is reserved for its former account.
    """
    while True:
        if (existing := await tx.accounts.lock_by_email(email)) is not None:
            return existing, False
        account = accounts.new_account(email, None, now, origin=origin, org_id=org_id)
        if await tx.accounts.add_if_free(account):
            return account, True
        if await tx.email_changes.is_reserved(email, now):
            raise accounts.EmailNotFree
        # Another transaction took the address first, and has committed. Lock its account.


async def find_continuation(ports: Ports, purpose: email_queue.TokenPurpose, token: str) -> email_queue.LinkContinuation:
    """Return where the browser continues after this link. The link may be used, expired or unknown."""
    async with ports.storage.reading() as read:
        return await read.one_time_tokens.continuation(values.digest(token), purpose) or email_queue.TO_ACCOUNT_PAGE


async def verify_email(ports: Ports, caller: Caller, token: str) -> accounts.VerifiedEmail:
    """Verify the address that a verification link was sent to. A link works once.

    If the account has a different address, the link must be for the new address in the pending change, which then takes
    effect.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        account, email = await _redeem(tx, email_queue.TokenPurpose.VERIFY_EMAIL, token, now)
        if not account.is_usable:
            raise accounts.LinkInvalid
        is_change = email != account.email
        if is_change:
            await email_changes.complete(tx, account, email, now)
        else:
            await tx.accounts.mark_verified(account.id, now)
    return accounts.VerifiedEmail(account.id, email, is_change)


async def find_verified_email(ports: Ports, token: str) -> values.Email | None:
    """Return the address that this used verification link was sent to, if it is now its account's verified address."""
    async with ports.storage.reading() as read:
        return await read.one_time_tokens.verified_email(values.digest(token))


async def redeem_verification(tx: storage.Transaction, token: str, now: datetime) -> accounts.Account:
    """Use up the verification link of a sign-up, and return its account, locked and verified."""
    account, email = await _redeem(tx, email_queue.TokenPurpose.VERIFY_EMAIL, token, now)
    if not account.is_usable or email != account.email:
        raise accounts.LinkInvalid
    await tx.accounts.mark_verified(account.id, now)
    return await tx.accounts.lock(account.id) or refuse(accounts.LinkInvalid)


async def forgot_password(
    ports: Ports, caller: Caller, email: values.Email, org_slug: str | None = None, next_path: str | None = None
) -> None:
    """Queue an email with a reset link and the branding for the organization `org_slug`.

    After the reset, the browser continues at `next_path`.

    The mailer looks up the account later, so that the response time does not reveal whether the account exists
    (security B-2).
    """
    await _queue(ports, caller, email_queue.EmailKind.RESET_PASSWORD, email, org_slug, next_path)


async def resend_verification(
    ports: Ports, caller: Caller, email: values.Email, org_slug: str | None = None, next_path: str | None = None
) -> None:
    """Queue an email with a verification link. The mailer drops it if the address needs no verification.

    After the link, the browser continues at `next_path`, and without it where the sign-up wanted to go.
    """
    await _queue(ports, caller, email_queue.EmailKind.VERIFY_EMAIL, email, org_slug, next_path)


async def resend_own_verification(ports: Ports, caller: Person) -> None:
    """Queue a verification email to the new address of the caller's pending change, or else to their present address."""
    if not await email_changes.resend(ports, caller):
        await resend_verification(ports, caller, caller.email)


async def _queue(
    ports: Ports, caller: Caller, kind: email_queue.EmailKind, email: values.Email, org_slug: str | None, next_path: str | None
) -> None:
    continuation = email_queue.LinkContinuation(next_path)
    async with ports.storage.transaction(by=caller) as tx:
        # Looked up before any step that depends on the account, so that every request takes the same time (security B-2).
        org_id = None if org_slug is None else await tx.branding.active_org_id(org_slug)
        await tx.email_queue.add(email_queue.new_email(kind, email, ports.clock.now(), org_id=org_id, continuation=continuation))


async def find_reset(ports: Ports, token: str) -> accounts.PasswordReset | None:
    """Return the effects of a reset link, or None if it does not work now. The link is not used up."""
    async with ports.storage.reading() as read:
        email = await read.one_time_tokens.live_email(values.digest(token), email_queue.TokenPurpose.RESET_PASSWORD, ports.clock.now())
        if email is None:
            return None
        account = await read.accounts.by_email(email)
        if account is None:
            return accounts.PasswordReset(is_first_password=False, ends_sessions=True)
        now = ports.clock.now()
        methods, _ = await added_methods.find(ports, read, account, now)
        added = tuple(method for method in methods if not method.is_kept_by_policy)
        # If the address was never proved, the reset deletes passkeys, and turns second-factor passkeys into security keys.
        key_count = 0 if account.is_unproven and account.passkey_second_at is None else account.key_count
        keys_stay = key_count > sum(method.passkey is not None for method in added)
        ending = {method.second for method in added}
        app_stays = account.mfa_enabled_at is not None and proofs.FactorKind.TOTP not in ending
        asks_for_factors = app_stays or (keys_stay and account.passkey_second_at is not None and proofs.FactorKind.PASSKEY not in ending)
        is_first = account.password_hash is None
        return accounts.PasswordReset(
            is_first_password=is_first,
            ends_sessions=not is_first or await read.accounts.has_signed_in(account.id),
            added=added,
            keeps_factors=len(added) < len(methods) or keys_stay or app_stays,
            is_enough=not asks_for_factors and await factor_changes.accept_password(read, account.id, now),
            least_length=await find_least_password_length(read, account),
            restores_by_undo=await factor_history.is_restored_by_undo(ports, read, account, now),
        )


async def reset_password(ports: Ports, caller: Caller, token: str, new_password: str, kept: Collection[UUID] | None = None) -> None:
    """Set a new password by a reset link, which also verifies the address (security A-6, A-7).

    The account's sessions, refresh tokens, pre-auth tokens, trusted devices and unused reset links end. A pending change of address ends,
    too. Passkeys stay, and the email says so. `kept` are the ids in `PasswordReset.added` that the user recognized. Added methods that are
    not kept end, even if only a recovery then meets a policy. None: recently linked accounts and recent second factors end, unless a policy
    needs them. An account that had a second factor 72 hours ago keeps a second factor.

    Raises: LinkInvalid.
    """
    async with ports.storage.reading() as read:  # saves the expensive hash; `_redeem` decides
        email = await read.one_time_tokens.live_email(
            values.digest(token), email_queue.TokenPurpose.RESET_PASSWORD, ports.clock.now()
        ) or refuse(accounts.LinkInvalid)
    await check_password_of_address(ports, email, new_password)
    password_hash = await ports.passwords.hash(new_password)
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        account, email = await _redeem(tx, email_queue.TokenPurpose.RESET_PASSWORD, token, now)
        # A token is bound to the address it was sent to. After an address change, the owner of the old mailbox must not
        # get in (security ).
        if email != account.email:
            raise accounts.LinkInvalid
        # If a usable account verified a different address before, the second factor stays: a thief may have changed the
        # address.
        if account.is_unproven:
            await tx.one_time_tokens.void(account.id, email_queue.TokenPurpose.VERIFY_EMAIL)
            await mailbox.remove_unproven_ways(tx, account)
        restores_by_undo = await factor_history.is_restored_by_undo(ports, tx, account, now)
        needs_recovery = await added_methods.end_unrecognized(ports, tx, caller, account, kept, now)
        account = await mailbox.prove_mailbox(tx, account, now) or refuse(accounts.LinkInvalid)
        await tx.one_time_tokens.void(account.id, email_queue.TokenPurpose.RESET_PASSWORD)
        await tx.email_changes.cancel_pending(account.id, now)  # a session thief may have requested it
        await tx.sessions.end_all(account.id, now)
        await tx.flows.forget_user(account.id)
        await tx.devices.distrust(account.id, now)
        await tx.accounts.set_password(account.id, password_hash, now)
        marks = {RESTORES_BY_UNDO: restores_by_undo, ASKS_FOR_FACTORS: account.second_factors, NEEDS_RECOVERY: needs_recovery}
        detail = f"{account.passkey_count}{''.join(mark for mark, is_set in marks.items() if is_set)}"
        await security_notices.notify(tx, account, email_queue.EmailKind.PASSWORD_CHANGED, now, session_id=None, detail=detail)
        tx.record(events.password_changed(account.id, "reset"))
        await tx.attempt_limits.clear_of_account(SecretKind.PASSWORD, account.id, account.email)


async def _redeem(
    tx: storage.Transaction, purpose: email_queue.TokenPurpose, token: str, now: datetime
) -> tuple[accounts.Account, values.Email]:
    """Use up a token. Return its account, locked, and the address that it was sent to, which may no longer be the account's."""
    token_hash = values.digest(token)
    account = await tx.accounts.lock_by_token(token_hash, purpose) or refuse(accounts.LinkInvalid)
    return account, await tx.one_time_tokens.redeem(token_hash, purpose, now) or refuse(accounts.LinkInvalid)


async def get_own(ports: Ports, caller: Person) -> accounts.Account:
    """Return the caller's account."""
    async with ports.storage.reading() as read:
        return await read.accounts.by_id(caller.user_id) or refuse(AccountGone)


async def find_own_password_rules(ports: Ports, caller: Person) -> tuple[accounts.Account, int]:
    """Return the caller's account, and the least length for its new password."""
    async with ports.storage.reading() as read:
        account = await read.accounts.by_id(caller.user_id) or refuse(AccountGone)
        return account, await find_least_password_length(read, account)


async def set_password(ports: Ports, caller: Person, new_password: str) -> None:
    """Set an account's first password. No session ends."""
    async with ports.storage.reading() as read:
        account = await read.accounts.by_id(caller.user_id) or refuse(AccountGone)
    await check_password_of_account(ports, account, account.email, new_password)
    if account.password_hash is not None:
        raise accounts.PasswordAlreadySet
    password_hash = await ports.passwords.hash(new_password)
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        account = await factor_changes.lock_account(ports, tx, caller, now)
        if account.password_hash is not None:  # checked again under the lock: another request may have set a password
            raise accounts.PasswordAlreadySet
        await tx.accounts.set_password(account.id, password_hash, now)
        await tx.one_time_tokens.void(account.id, email_queue.TokenPurpose.RESET_PASSWORD)  # the link in a welcome email works for days
        await security_notices.notify(tx, account, email_queue.EmailKind.PASSWORD_CHANGED, now, session_id=caller.session_id)
        tx.record(events.password_changed(account.id, "set"))


async def choose_password(ports: Ports, caller: Person, current: str | None, new_password: str) -> None:
    """Change the caller's password, or set the first password if `current` is None."""
    if current is None:
        await set_password(ports, caller, new_password)
    else:
        await change_password(ports, caller, current, new_password)


async def change_password(ports: Ports, caller: Person, current: str, new_password: str) -> None:
    """Change the caller's password.

    All sessions except the caller's end, and no device stays trusted (security A-8).

    A pending address change that another session requested ends, too.

    Raises: CurrentPasswordWrong, which counts as a failed attempt in this session; TooManyAttempts;
    NoPasswordSet.
    """
    accounts.check_password_length(current)
    async with ports.storage.reading() as read:
        account = await read.accounts.by_id(caller.user_id) or refuse(AccountGone)
    await check_password_of_account(ports, account, account.email, new_password)
    if account.password_hash is None:
        raise accounts.NoPasswordSet
    subject = session_subject(caller.session_id)
    await attempt_limits.count_attempt(ports, SecretKind.PASSWORD, subject)
    if not await ports.passwords.verify(account.password_hash, current):
        raise accounts.CurrentPasswordWrong
    await attempt_limits.clear(ports, SecretKind.PASSWORD, subject)  # the password was right, even if the change fails
    password_hash = await ports.passwords.hash(new_password)
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        locked = await factor_changes.lock_account(ports, tx, caller, now)
        if locked.password_hash != account.password_hash:  # another request changed it while we were hashing
            raise accounts.CurrentPasswordWrong
        await tx.accounts.set_password(locked.id, password_hash, now)
        await tx.one_time_tokens.void(locked.id, email_queue.TokenPurpose.RESET_PASSWORD)
        await tx.sessions.end_others(locked.id, caller.session_id, now)
        await email_changes.cancel_of_other_sessions(tx, locked.id, caller.session_id, now)  # a thief may have requested it
        await tx.flows.forget_user(locked.id)
        await tx.devices.distrust(locked.id, now)
        await security_notices.notify(tx, locked, email_queue.EmailKind.PASSWORD_CHANGED, now, session_id=caller.session_id)
        tx.record(events.password_changed(locked.id, "change"))


async def remove_password(ports: Ports, caller: Person) -> None:
    """Remove the caller's password. They sign in with a passkey from now on. No session ends.

    Raises: NoPasswordSet; PasswordNeeded if the account has no passkey that signs in; PasskeysNotEnough if a sign-in
    policy, also of an application, does not accept passkeys now or later.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        account = await factor_changes.lock_account(ports, tx, caller, now)
        if account.password_hash is None:
            raise accounts.NoPasswordSet
        if proofs.Method.PASSKEY not in await ways_in.remaining(ports, tx, account, without=proofs.Method.PASSWORD):
            raise accounts.PasswordNeeded
        for each in await tx.sign_in_policies.anywhere(account.id, None):
            if not all(moment.rules.may_use(proofs.Method.PASSKEY) for moment in each.policy.moments(now)):
                raise accounts.PasskeysNotEnough(each.name)
        await tx.accounts.drop_password(account.id, now)
        await tx.one_time_tokens.void(account.id, email_queue.TokenPurpose.RESET_PASSWORD)
        await security_notices.notify(
            tx, account, email_queue.EmailKind.PASSWORD_CHANGED, now, session_id=caller.session_id, detail=PASSWORD_REMOVED
        )
        tx.record(events.password_changed(account.id, "remove"))


async def delete_account(tx: storage.Transaction, user_id: UUID, now: datetime) -> None:
    """Delete a locked account that is a member of no organization, with all data about the user.

    The logs of organizations keep their entries, except entries about the user's own activity only. The
    address becomes free: an account that takes it later is a different user.
    """
    await tx.sessions.remove(user_id, now)
    await tx.service_users.remove_everywhere(user_id)
    await tx.logins.remove(user_id)
    await tx.accounts.remove(user_id)
    await tx.audit.forget(user_id)  # at the end, because it locks totals that concurrent transactions wait for


async def check_password_of_account(ports: Ports, account: accounts.Account | None, email: values.Email, password: str) -> None:
    """Check a new password for an account with this address. None: there is no account yet."""
    required = None
    if account is not None and account.origin_org_id is not None:
        async with ports.storage.reading() as read:
            required = await _required_length(read, account)
    accounts.check_new_password(password, email, ports.policy.common_passwords, required)


async def find_least_password_length(read: storage.Reading, account: accounts.Account) -> int:
    """Return the least length that a new password for this account must have. Only its user may learn it."""
    required = await _required_length(read, account)
    return accounts.MIN_PASSWORD_LENGTH if required is None else max(accounts.MIN_PASSWORD_LENGTH, required.length)


async def check_password_of_address(ports: Ports, email: values.Email, password: str) -> None:
    """Check a new password for the account with this address, if the account exists."""
    async with ports.storage.reading() as read:
        account = await read.accounts.by_email(email)
    await check_password_of_account(ports, account, email, password)


async def _required_length(read: storage.Reading, account: accounts.Account) -> accounts.RequiredLength | None:
    """Return the least length that the organization asks for which created the account.

    No other organization decides about its password.
    """
    if account.origin_org_id is None or not (await read.accounts.account_control(account.id, account.origin_org_id)).controls_account:
        return None
    policy = await read.sign_in_policies.effective(account.origin_org_id)
    length = None if policy is None else policy.parts[0].rules.min_password_length
    return None if policy is None or length is None else accounts.RequiredLength(policy.name, length)
