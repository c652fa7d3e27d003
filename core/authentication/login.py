"""Sign-in: verify a password, the response of an identity provider, or a code of the second factor.

Every sign-in with a verified first factor continues in `complete_first_factor`. It treats all
methods alike: it requires the second factor (security A-10), recognizes the device, and writes the
same records.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

from core.accounts import attempt_limits, devices, mfa
from core.accounts import events as account_events
from core.accounts.factors import codes
from core.accounts.factors.codes import VerifiedCode
from core.accounts.model import attempt_limits as attempt_limits_model
from core.accounts.model import devices as devices_model
from core.accounts.model import mfa as mfa_model
from core.accounts.model.accounts import Account, check_password_length
from core.accounts.model.attempt_limits import SecretKind
from core.accounts.model.devices import PresentedDevice
from core.accounts.model.email_queue import EmailKind
from core.accounts.model.mfa import CodeWrong
from core.accounts.notices import security_notices
from core.applications.model.services import ServiceNotFound
from core.authentication import identities
from core.authentication.model.identities import PendingIdentity
from core.authentication.model.login import (
    MAX_CODE_ATTEMPTS,
    PASSWORD,
    SERVICE_REFUSALS,
    UNKNOWN_CLIENT,
    AccountClosed,
    CredentialsInvalid,
    EmailNotVerified,
    LoginAttempt,
    LoginFailure,
    MfaAttempt,
    PendingSignIn,
    PreAuthInvalid,
    PreAuthToken,
    SignedIn,
    SignInMethod,
    VerifiedSignIn,
)
from core.authentication.session_start import start_session
from core.kernel.callers import Person, ServiceContext
from core.kernel.causes import Caller
from core.kernel.claims import PreAuthClaims
from core.kernel.connections import ConnectionSlug
from core.kernel.errors import refuse
from core.kernel.proofs import Proof
from core.kernel.values import Email, new_id

if TYPE_CHECKING:
    from ports import Ports
    from ports.storage import Transaction


@dataclass(frozen=True, slots=True)
class _VerifiedPassword:
    """A verified password. The account is not locked yet."""

    attempt: LoginAttempt
    account: Account
    password_hash: str = field(repr=False)
    new_hash: str | None = field(repr=False)  # replaces an outdated hash


async def sign_in_with_password(
    ports: Ports,
    caller: Caller,
    email: Email,
    password: str,
    client: PresentedDevice = UNKNOWN_CLIENT,
    service: ServiceContext | None = None,
    *,
    in_browser: bool = False,
    saml_state: str | None = None,
) -> SignedIn | PreAuthToken:
    """Verify a password, and start a session or a pending sign-in. `saml_state` is kept in the pre-auth token.

    An unknown address, an account that cannot sign in and a wrong password give the same response
    after the same work (security B-1, B-2). Wrong passwords from other devices do not lock out a
    device in which the account has signed in before (security A-3).

    Raises: CredentialsInvalid, EmailNotVerified, TooManyAttempts; Limited if too many passwords
    wait to be hashed; the errors of `find_password_service` if the service changed while the
    password was verified.
    """
    check_password_length(password)
    verified = await _verify_password(ports, caller, email, password, client)
    attempt, now = verified.attempt, ports.clock.now()
    person = _person(verified.account, caller, service)
    fingerprint = devices.fingerprint(ports, person, client)
    try:
        async with ports.storage.transaction(by=person, in_session=False) as tx:
            # The account is read again under its lock: a password reset or a deactivation can have
            # committed during the hash.
            locked = tx.accounts.lock_for_login_deferred(verified.account.id, verified.password_hash)
            device = await devices.match_device(tx, verified.account.id, fingerprint, service.org_id if service else None, now)
            account = locked.value or refuse(CredentialsInvalid)
            if verified.new_hash is not None:
                await tx.accounts.rehash_password(account.id, verified.new_hash, now)
            method = SignInMethod(PASSWORD, service, in_browser)
            sign_in = VerifiedSignIn(person=person, account=account, method=method, device=device)
            outcome = await complete_first_factor(ports, tx, sign_in, now)
            await tx.attempt_limits.clear(SecretKind.PASSWORD, attempt.subject)
    except SERVICE_REFUSALS:  # the password was right
        await attempt_limits.clear(ports, SecretKind.PASSWORD, attempt.subject)
        raise
    if isinstance(outcome, PendingSignIn):
        return _pre_auth_token(ports, outcome, saml_state)
    await _confirm_service_membership(ports, outcome)
    return outcome


async def _verify_password(ports: Ports, caller: Caller, email: Email, password: str, client: PresentedDevice) -> _VerifiedPassword:
    """Count the attempt, and verify the password. Without a usable account, the same work is done (security B-2).

    Raises: CredentialsInvalid, EmailNotVerified, TooManyAttempts; Limited if too many passwords wait to be hashed.
    """
    now, known = ports.clock.now(), devices_model.known_by(client)
    async with ports.storage.autocommit() as statements:
        attempt = await statements.attempt_limits.count_password_attempt(
            email, known, attempt_limits_model.attempt_limit(ports.policy, SecretKind.PASSWORD), now
        )
    attempt_limits_model.raise_if_locked(SecretKind.PASSWORD, attempt.blocked_until, now)
    account = attempt.account
    usable = account if account is not None and account.is_usable and account.password_hash is not None else None
    is_right = await ports.passwords.verify(usable.password_hash if usable else None, password)
    if usable is None or not is_right:
        await record_failure(ports, caller, LoginFailure.CREDENTIALS, PASSWORD, None if account is None else account.id)
        raise CredentialsInvalid
    if usable.email_verified_at is None:
        ports.metrics.login_failed(LoginFailure.UNVERIFIED)
        await attempt_limits.clear(ports, SecretKind.PASSWORD, attempt.subject)  # the password was right
        raise EmailNotVerified
    password_hash = usable.password_hash or ""
    new_hash = await ports.passwords.hash(password) if ports.passwords.is_outdated(password_hash) else None
    return _VerifiedPassword(attempt, usable, password_hash, new_hash)


async def sign_in_with_identity(
    ports: Ports,
    caller: Caller,
    provider: ConnectionSlug,
    find_account: Callable[[Transaction], Awaitable[tuple[Account, PendingIdentity | None]]],
    client: PresentedDevice,
    *,
    is_fresh: bool,
) -> SignedIn | PreAuthToken:
    """Start a browser session, or a pending sign-in, for a user that an identity provider authenticated.

    `is_fresh`: the provider did so for this sign-in, and not earlier.
    """
    return await sign_in_to_account(ports, caller, SignInMethod(provider, None, True, is_fresh), find_account, client)


async def sign_in_to_account(
    ports: Ports,
    caller: Caller,
    method: SignInMethod,
    find_account: Callable[[Transaction], Awaitable[tuple[Account, PendingIdentity | None]]],
    client: PresentedDevice,
    saml_state: str | None = None,
) -> SignedIn | PreAuthToken:
    """Start a session, or a pending sign-in, for a user that another method than a password authenticated.

    `find_account` finds or creates the account and locks it. It also returns the identity to link,
    if any. `saml_state` is kept in the pre-auth token.

    Raises: AccountClosed.
    """
    now, fingerprint = ports.clock.now(), devices.fingerprint(ports, caller, client)
    org_id = method.service.org_id if method.service else None
    closed_id: UUID | None = None
    try:
        async with ports.storage.transaction(by=caller, in_session=False) as tx:
            account, identity = await find_account(tx)
            if not account.is_usable:
                closed_id = account.id
                raise AccountClosed
            person = _person(account, caller, method.service)
            tx.acts_as(person)
            device = await devices.match_device(tx, account.id, fingerprint, org_id, now)
            sign_in = VerifiedSignIn(person=person, account=account, method=method, device=device, pending_identity=identity)
            outcome = await complete_first_factor(ports, tx, sign_in, now)
    except AccountClosed:
        await record_failure(ports, caller, LoginFailure.CLOSED, method.provider, closed_id)
        raise
    if isinstance(outcome, PendingSignIn):
        return _pre_auth_token(ports, outcome, saml_state)
    await _confirm_service_membership(ports, outcome)
    return outcome


async def complete_first_factor(ports: Ports, tx: Transaction, sign_in: VerifiedSignIn, now: datetime) -> SignedIn | PendingSignIn:
    """Start a session, or a pending sign-in if the second factor is still required.

    A trusted device skips the second factor. A pending identity is linked only when all required
    factors are verified, because the link gives permanent access to the account (security A-10).

    Raises: ServiceNotFound, OrganizationNotActive, NeedsCodeFlow, BlockedByDirectory, NoAccessToService.
    """
    account, method, identity = sign_in.account, sign_in.method, sign_in.pending_identity
    if account.second_factor is None or sign_in.device.is_trusted:
        if identity is not None:
            is_new = await tx.identities.add(identity.of(account.id, now))
            if is_new and account.created_at < now:  # otherwise this sign-in created the account
                await _report_link(tx, sign_in, identity, now)
        return await start_session(ports, tx, sign_in, now)
    pending = PendingSignIn(
        id=new_id(),
        user_id=account.id,
        service_id=method.service.id if method.service else None,
        provider=method.provider,
        created_at=now,
        expires_at=now + ports.policy.pre_auth_ttl,
        identity=identity,
    )
    await tx.pre_auths.add(pending)
    return pending


async def sign_in_with_code(
    ports: Ports,
    caller: Caller,
    claims: PreAuthClaims,
    code: str,
    client: PresentedDevice = UNKNOWN_CLIENT,
    *,
    trust_device: bool = False,
    in_browser: bool = False,
) -> SignedIn:
    """Verify a code of the second factor, and start the session of the pending sign-in (security J-8, M-1, M-2, M-3).

    With `trust_device`, the device can skip the second factor until the period that the user's organizations set is over.

    Raises: PreAuthInvalid, CodeMalformed, CodeWrong, TooManyAttempts; the errors of `find_password_service`.
    """
    codes.check_format(code)
    now = ports.clock.now()
    # Count the attempt before the code is checked. If the pending sign-in has ended, nothing is
    # counted, and the response reveals nothing about the account.
    async with ports.storage.autocommit() as statements:
        attempt_limit, subject = attempt_limits_model.attempt_limit(ports.policy, SecretKind.MFA), mfa_model.attempt_subject(claims.user_id)
        counted = await statements.pre_auths.count_attempt(claims.id, claims.user_id, MAX_CODE_ATTEMPTS, subject, attempt_limit, now)
    attempt = counted or refuse(PreAuthInvalid)
    attempt_limits_model.raise_if_locked(SecretKind.MFA, attempt.blocked_until, now)
    user_id = attempt.account.id
    try:
        verified = await codes.verify(ports, user_id, attempt.enrollment, code)
        signed_in = await _complete_second_factor(
            ports, caller, attempt, verified, client, trust_device=trust_device, in_browser=in_browser
        )
    except CodeWrong:
        if not await mfa.is_enabled(ports, user_id):  # switched off during this request: the code may have been right
            await attempt_limits.clear(ports, SecretKind.MFA, subject)
            raise PreAuthInvalid from None
        await codes.log_failure(ports, caller, user_id)
        await record_failure(ports, caller, LoginFailure.MFA, attempt.pending.provider, user_id)
        raise
    except (PreAuthInvalid, *SERVICE_REFUSALS):  # the code was right
        await attempt_limits.clear(ports, SecretKind.MFA, subject)
        raise
    await _confirm_service_membership(ports, signed_in)
    return signed_in


async def _complete_second_factor(
    ports: Ports, caller: Caller, attempt: MfaAttempt, code: VerifiedCode, client: PresentedDevice, *, trust_device: bool, in_browser: bool
) -> SignedIn:
    """Use up the code and the pending sign-in, and start the session.

    Raises: CodeWrong if a concurrent request used the same code first; PreAuthInvalid, ServiceNotFound.
    """
    pending, account, service = attempt.pending, attempt.account, None
    identity = pending.identity
    if pending.service_id is not None:
        if in_browser:  # an API client started this sign-in for its application, so our pages must not continue it
            raise PreAuthInvalid
        async with ports.storage.reading() as read:
            service = await read.services.context_by_id(pending.service_id) or refuse(ServiceNotFound)
    now = ports.clock.now()
    person = _person(account, caller, service)
    fingerprint = devices.fingerprint(ports, person, client)
    async with ports.storage.transaction(by=person, in_session=False) as tx:
        # Lock order: the subject at the identity provider, then the account.
        if identity is not None:
            await tx.identities.lock_subject(identity.provider, identity.issuer, identity.subject)
        # Every operation that ends pending sign-ins holds the lock on the account, so `redeem`
        # sees its result.
        redeemed = codes.redeem(tx, person, account.id, pending.id, code, now)
        device = await devices.match_device(tx, account.id, fingerprint, service.org_id if service else None, now)
        account = await codes.accept(tx, redeemed.value or refuse(PreAuthInvalid), code, now)
        if not account.is_usable:
            raise PreAuthInvalid
        is_new = identity is not None and await identities.link_pending(tx, identity, account.id, now)
        sign_in = VerifiedSignIn(
            person=person,
            account=account,
            method=SignInMethod(pending.provider, service, in_browser),
            device=device,
            second=Proof(code.method, now),
            trust_device=trust_device,
        )
        if identity is not None and is_new:
            await _report_link(tx, sign_in, identity, now)
        return await start_session(ports, tx, sign_in, now)


async def _report_link(tx: Transaction, sign_in: VerifiedSignIn, identity: PendingIdentity, now: datetime) -> None:
    """Record that a sign-in linked an account at a provider, and tell the user, if it was not known before."""
    if not identity.known_elsewhere:
        tx.record(account_events.identity_linked(sign_in.account.id, identity.provider))
        kind, session_id = EmailKind.IDENTITY_LINKED, sign_in.person.session_id
        await security_notices.notify(tx, sign_in.account, kind, now, session_id=session_id, detail=identity.provider)


async def _confirm_service_membership(ports: Ports, signed_in: SignedIn) -> None:
    service = signed_in.session.service
    if service is not None:
        await confirm_membership(ports, signed_in, service.org_id)


async def confirm_membership_if_admitted(ports: Ports, signed_in: SignedIn, org_id: UUID, service_id: UUID) -> None:
    """Confirm the user's membership of this organization, if any, unless its service refuses the user next."""
    async with ports.storage.reading() as read:
        is_admitted = await read.end_users.may_use(org_id, service_id, signed_in.session.user_id, signed_in.session.created_at)
    if is_admitted:
        await confirm_membership(ports, signed_in, org_id)


async def confirm_membership(ports: Ports, signed_in: SignedIn, org_id: UUID) -> None:
    """Confirm the user's membership of this organization, if any. Signing in to one of its services confirms it."""
    async with ports.storage.autocommit() as statements:
        await statements.members.confirm(org_id, signed_in.session.user_id, signed_in.session.created_at)


def _person(account: Account, caller: Caller, service: ServiceContext | None) -> Person:
    """Return the user who signs in, with the id of the session that may start."""
    return Person(
        user_id=account.id,
        email=account.email,
        email_verified=account.email_verified_at is not None,
        session_id=new_id(),
        service=service,
        address=caller.address,
        agent=caller.agent,
    )


def _pre_auth_token(ports: Ports, pending: PendingSignIn, saml_state: str | None = None) -> PreAuthToken:
    claims = PreAuthClaims(
        id=pending.id, user_id=pending.user_id, issued_at=pending.created_at, expires_at=pending.expires_at, saml_state=saml_state
    )
    expires_in = int(pending.expires_at.timestamp()) - int(pending.created_at.timestamp())
    return PreAuthToken(ports.tokens.sign_pre_auth(claims), expires_in)


async def record_failure(ports: Ports, caller: Caller, reason: LoginFailure, provider: str, user_id: UUID | None) -> None:
    """Count a failed sign-in, and record it for this account, if any."""
    ports.metrics.login_failed(reason)
    location = ports.geoip.locate(caller.address)  # also without an account, so that the response takes equally long (security B-2)
    if user_id is not None:
        async with ports.storage.autocommit() as statements:
            await statements.logins.record_failure(user_id, provider, ports.clock.now(), caller.address, caller.agent, location)
