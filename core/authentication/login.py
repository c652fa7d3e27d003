"""Signing in: the password, the second factor where it is asked for, and the session that begins then (identity.md sections 3, 4.1 and 4.9;
decisions, points 41, 42, 57, 59 to 61).

Whatever the first factor was, `admit` goes on from there: so every way to sign in asks for the second one (security.md A-10), knows the
device, and leaves the same records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.accounts import attempt_limits, attempt_limits_rules, devices, devices_rules, mfa, mfa_rules
from core.accounts.accounts_rules import check_password_length
from core.accounts.attempt_limits_rules import Secret
from core.accounts.email_queue_rules import MailKind, new_mail
from core.accounts.mfa_rules import CodeWrong
from core.applications import services
from core.applications.services_rules import ServiceNotFound
from core.authentication import events, identities
from core.authentication.login_failures import LoginFailure
from core.authentication.sessions import new_session, pair
from core.authentication.sessions_rules import NO_ENTITLEMENT
from core.kernel.errors import OrganizationNotActive, refuse
from core.kernel.principals import BlockedByDirectory, OrganizationStatus, Person, PreAuthClaims
from core.kernel.values import Email, digest, new_id, new_secret

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import datetime
    from uuid import UUID

    from core.accounts.accounts_rules import Account
    from core.accounts.devices_rules import Arrival, Client, Device
    from core.accounts.mfa_rules import Proof
    from core.authentication.identities_rules import PendingIdentity
    from core.authentication.sessions_rules import Grant, TokenPair
    from core.billing.subscriptions_rules import Entitlement
    from core.kernel.principals import Caller, ServiceContext
    from core.kernel.providers import Provider
    from ports import Ports
    from ports.storage import Transaction
from core.authentication.login_rules import (
    UNKNOWN_CLIENT,
    PASSWORD,
    SERVICE_CLOSED,
    MAX_CODE_ATTEMPTS,
    AccountClosed,
    CredentialsInvalid,
    EmailNotVerified,
    NeedsCodeFlow,
    PendingSignIn,
    PreAuthToken,
    PreAuthInvalid,
    SignedIn,
    MfaAttempt,
    SignInMethod,
)


async def with_password(
    ports: Ports,
    caller: Caller,
    email: Email,
    password: str,
    client: Client = UNKNOWN_CLIENT,
    service: ServiceContext | None = None,
    *,
    in_browser: bool = False,
    saml_state: str | None = None,
) -> SignedIn | PreAuthToken:
    """What the right password gives (identity.md section 4.1): a session, of `service` if one is given, which the person then uses; or
    where the second factor is asked for, a pre-auth token, which keeps what SAML sign-on it is for.

    An unknown address, an account that may not sign in and a wrong password are one answer at one price (security.md B-1, B-2). On a
    device that the account trusts, the wrong passwords of strangers do not count (A-3). Raises CredentialsInvalid, EmailNotVerified,
    TooManyGuesses, Limited when too many hashes are waiting, and what service_to_sign_in_to raises when the service has been closed
    meanwhile.
    """
    check_password_length(password)
    now, trust_hash = ports.clock.now(), devices_rules.trust_hash_of(client)
    async with ports.storage.autocommit() as count:
        guess = await count.guesses.charge_password(email, trust_hash, attempt_limits_rules.allowance(ports.policy, Secret.PASSWORD), now)
    attempt_limits_rules.judge(guess.secret, guess.blocked_until, now)
    account = guess.account
    usable = account if account is not None and account.is_usable and account.password_hash is not None else None
    right = await ports.passwords.verify(usable.password_hash if usable else None, password)
    if usable is None or not right:
        await _failed(ports, caller, LoginFailure.CREDENTIALS, PASSWORD, None if account is None else account.id)
        raise CredentialsInvalid
    if usable.email_verified_at is None:
        ports.metrics.login_failed(LoginFailure.UNVERIFIED)
        await attempt_limits.clear(ports, guess.secret, guess.subject)  # it was right
        raise EmailNotVerified
    old_hash = usable.password_hash or ""
    new_hash = await ports.passwords.hash(password) if ports.passwords.is_outdated(old_hash) else None
    now = ports.clock.now()
    person = _person(usable, caller, service)
    look = devices.look(ports, person, client)
    try:
        async with ports.storage.transaction(by=person, in_session=False) as tx:  # whoever knows the password does it
            # What was read before the hash is read again under the lock: a reset or a deactivation may have come in between.
            locked = tx.accounts.lock_for_login(usable.id, old_hash)
            arrival = await devices.arrive(tx, usable.id, look, service.org_id if service else None, now)
            account = locked.value or refuse(CredentialsInvalid)
            if new_hash is not None:
                await tx.accounts.set_password(account.id, new_hash, now)
            admitted = await admit(ports, tx, person, account, SignInMethod(PASSWORD, service, in_browser), arrival, now)
            await tx.guesses.clear(guess.secret, guess.subject)
    except SERVICE_CLOSED:  # meanwhile; the password was right
        await attempt_limits.clear(ports, guess.secret, guess.subject)
        raise
    if isinstance(admitted, PendingSignIn):
        return _pre_auth(ports, admitted, saml_state)
    await _take_part(ports, admitted)
    return admitted


async def with_identity(
    ports: Ports,
    caller: Caller,
    provider: Provider,
    whose: Callable[[Transaction], Awaitable[tuple[Account, PendingIdentity | None]]],
    client: Client,
) -> SignedIn | PreAuthToken:
    """What it gives to be vouched for by an identity provider: a session in a browser on our own pages, or where the second factor is asked
    for, a pre-auth token (security.md A-10). `whose` finds the account, or makes it, and leaves it locked; and says what is to be linked to
    it by that.

    Raises AccountClosed, and what `whose` raises.
    """
    now, look = ports.clock.now(), devices.look(ports, caller, client)
    closed: UUID | None = None
    try:
        async with ports.storage.transaction(by=caller, in_session=False) as tx:
            account, unlinked = await whose(tx)
            if not account.is_usable:
                closed = account.id
                raise AccountClosed
            person = _person(account, caller, None)
            tx.acts_as(person)
            arrival = await devices.arrive(tx, account.id, look, None, now)
            admitted = await admit(ports, tx, person, account, SignInMethod(provider, None, in_browser=True), arrival, now, unlinked)
    except AccountClosed:
        await _failed(ports, caller, LoginFailure.CLOSED, provider, closed)
        raise
    return _pre_auth(ports, admitted) if isinstance(admitted, PendingSignIn) else admitted


async def admit(
    ports: Ports,
    tx: Transaction,
    person: Person,
    account: Account,
    way: SignInMethod,
    arrival: Arrival,
    now: datetime,
    unlinked: PendingIdentity | None = None,
) -> SignedIn | PendingSignIn:
    """What a right first factor leads to, on a locked account that may sign in: a session, whose id is that of `person`, or waiting for the
    second factor. What is to be linked becomes a link with the one, or waits with the other: it would open the account for good, which one
    factor must not do (security.md A-10). Raises what service_to_sign_in_to raises."""
    if account.mfa_enabled_at is None or arrival.is_trusted:
        if unlinked is not None:
            await tx.identities.add(unlinked.of(account.id, now))
        return await _begin(ports, tx, person, account, way, arrival, now)
    pending = PendingSignIn(
        id=new_id(),
        user_id=account.id,
        service_id=way.service.id if way.service else None,
        provider=way.provider,
        created_at=now,
        expires_at=now + ports.policy.pre_auth_ttl,
        unlinked=unlinked,
    )
    await tx.pre_auths.add(pending)
    return pending


async def with_code(
    ports: Ports,
    caller: Caller,
    claims: PreAuthClaims,
    code: str,
    client: Client = UNKNOWN_CLIENT,
    *,
    trust: bool = False,
    in_browser: bool = False,
) -> SignedIn:
    """The session that a pre-auth token with these claims and the right code give, once (identity.md section 4.9; security.md J-8, M-1 to
    M-3).

    With `trust` the device may do without the second factor from now on, for as long as the person's organizations let it.
    Raises PreAuthInvalid, CodeMalformed, CodeWrong, TooManyGuesses, and what service_to_sign_in_to raises.
    """
    mfa_rules.check_format(code)
    now = ports.clock.now()
    # Counted before the code is looked at; of a sign-in that is dead nothing is, so that it says nothing about the account.
    async with ports.storage.autocommit() as count:
        allowance, subject = attempt_limits_rules.allowance(ports.policy, Secret.MFA), mfa_rules.subject(claims.user_id)
        tried = await count.pre_auths.count_attempt(claims.id, claims.user_id, MAX_CODE_ATTEMPTS, subject, allowance, now) or refuse(PreAuthInvalid)
    attempt_limits_rules.judge(Secret.MFA, tried.blocked_until, now)
    user_id = tried.account.id
    try:
        proof = await mfa.check(ports, user_id, tried.enrolment, code)
        signed_in = await _shown(ports, caller, tried, proof, client, trust=trust, in_browser=in_browser)
    except CodeWrong:
        if not await mfa.is_enabled(ports, user_id):  # any more: it was right when it came
            await attempt_limits.clear(ports, Secret.MFA, subject)
            raise PreAuthInvalid from None
        await mfa.failed(ports, caller, user_id)
        await _failed(ports, caller, LoginFailure.MFA, tried.pending.provider, user_id)
        raise
    except (PreAuthInvalid, *SERVICE_CLOSED):  # meanwhile; the code was right
        await attempt_limits.clear(ports, Secret.MFA, subject)
        raise
    await _take_part(ports, signed_in)
    return signed_in


async def _shown(ports: Ports, caller: Caller, tried: MfaAttempt, proof: Proof, client: Client, *, trust: bool, in_browser: bool) -> SignedIn:
    """The second factor was shown. Raises CodeWrong when somebody else was faster with the same code."""
    pending, account, service = tried.pending, tried.account, None
    unlinked = pending.unlinked
    if pending.service_id is not None:
        if in_browser:  # an application's, which our own pages have not begun
            raise PreAuthInvalid
        async with ports.storage.reading() as read:
            service = await read.services.context_by_id(pending.service_id) or refuse(ServiceNotFound)
    now = ports.clock.now()
    person = _person(account, caller, service)
    look = devices.look(ports, person, client)
    async with ports.storage.transaction(by=person, in_session=False) as tx:
        if unlinked is not None:  # before the account, as wherever both are locked
            await tx.identities.lock_subject(unlinked.provider, unlinked.issuer, unlinked.subject)
        # Whatever ends sign-ins that wait, removes them, with the account locked.
        redeemed = mfa.redeem(tx, account.id, pending.id, proof, now)
        arrival = await devices.arrive(tx, account.id, look, service.org_id if service else None, now)
        account = await mfa.accept(tx, person, redeemed.value or refuse(PreAuthInvalid), proof, now)
        if not account.is_usable:
            raise PreAuthInvalid
        if unlinked is not None and not await identities.link_pending(tx, unlinked, account.id, now):
            raise PreAuthInvalid
        way = SignInMethod(pending.provider, service, in_browser)
        return await _begin(ports, tx, person, account, way, arrival, now, second_factor=True, trust=trust)


async def service_to_sign_in_to(ports: Ports, org_slug: str, service_slug: str) -> ServiceContext:
    """The service that somebody may sign in to with a password (decisions, point 57).

    Raises OrganizationNotFound, OrganizationNotActive, ServiceNotFound, NeedsCodeFlow, in this order.
    """
    async with ports.storage.reading() as read:
        service = await services.require_open(read, org_slug, await read.services.context_by_slug(org_slug, service_slug))
    if service.is_public:
        raise NeedsCodeFlow
    return service


def tokens(ports: Ports, signed_in: SignedIn) -> TokenPair:
    """The first pair of tokens of a session that is no browser's."""
    session = signed_in.session
    return pair(
        ports,
        session.id,
        session.user_id,
        signed_in.email,
        verified=signed_in.email_verified,
        ends_at=session.ends_at,
        now=session.created_at,
        refresh_token=signed_in.secret,
        service=session.service,
        entitlement=signed_in.entitlement,
    )


async def begin_at_service(
    ports: Ports,
    tx: Transaction,
    person: Person,
    account: Account,
    service: ServiceContext | None,
    provider: str,
    device_id: UUID | None,
    grant: Grant,
    now: datetime,
    *,
    arrived: Device | None = None,
) -> SignedIn:
    """A session of a service, with the id that `person` has, for a locked account that may sign in, and whose owner is signed in in a
    browser, all factors shown: what a code or a device code gives. Without a service it is one of the platform itself, at its own
    application. `arrived` is a device that has come for it, and was judged.

    Raises what `_take_in` raises.
    """
    entitlement = NO_ENTITLEMENT
    if service is not None:
        _, entitlement = await _take_in(tx, service, account.id, now)
    session = new_session(
        ports, account.id, person, service, now, id_=person.session_id, device_id=device_id, provider=provider, grant=grant
    )
    secret = new_secret()
    await tx.sessions.begin(session, digest(secret))
    await tx.logins.succeeded(session, provider, arrived)
    if arrived is not None:
        await _warn(tx, account, arrived, now)
    tx.record(events.signed_in(account.id, provider, service))
    return SignedIn(session, account.email, account.email_verified_at is not None, entitlement, secret, None)


async def _take_in(tx: Transaction, service: ServiceContext, user_id: UUID, now: datetime) -> tuple[ServiceContext, Entitlement]:
    """Count somebody among the users of a service, if it is there, and that of an active organization, still: the service as it is by now,
    and what they have of it.

    Raises ServiceNotFound, OrganizationNotActive, BlockedByDirectory.
    """
    enrolled = tx.end_users.enroll_deferred(service.id, user_id, now)
    found, entitlement = await tx.services.context_and_entitlement(service.id, user_id, now) or refuse(ServiceNotFound)
    if enrolled.value is None:
        raise BlockedByDirectory if await tx.scim_users.is_blocked(service.org_id, user_id) else ServiceNotFound
    if found.status is not OrganizationStatus.ACTIVE:
        raise OrganizationNotActive
    return found, entitlement


async def _begin(
    ports: Ports,
    tx: Transaction,
    person: Person,
    account: Account,
    way: SignInMethod,
    arrival: Arrival,
    now: datetime,
    *,
    second_factor: bool = False,
    trust: bool = False,
) -> SignedIn:
    entitlement, service = NO_ENTITLEMENT, way.service
    if service is not None:
        found, entitlement = await _take_in(tx, service, account.id, now)
        if found.is_public:  # by now: a hash takes its time
            raise NeedsCodeFlow
    device_token = await devices.welcome(tx, arrival, now, second_factor=second_factor, trust=trust)
    session = new_session(
        ports, account.id, person, service, now, id_=person.session_id, device_id=arrival.device.id, provider=way.provider
    )
    secret = new_secret()
    if way.in_browser:
        await tx.sessions.begin_in_browser(session, digest(secret))
    else:
        await tx.sessions.begin(session, digest(secret))
    await tx.logins.succeeded(session, way.provider, arrival.device)
    await _warn(tx, account, arrival.device, now)
    tx.record(events.signed_in(account.id, way.provider, service))
    return SignedIn(session, account.email, person.email_verified, entitlement, secret, device_token)


async def _warn(tx: Transaction, account: Account, device: Device, now: datetime) -> None:
    if device.risk.is_high and account.mfa_enabled_at is None:  # there is nothing more to ask for (decisions, point 83)
        await tx.mails.queue(new_mail(MailKind.UNUSUAL_SIGN_IN, account.email, now))


def _person(account: Account, caller: Caller, service: ServiceContext | None) -> Person:
    """Who signs in, with the id of the session that begins if all goes well."""
    return Person(
        user_id=account.id,
        email=account.email,
        email_verified=account.email_verified_at is not None,
        session_id=new_id(),
        service=service,
        address=caller.address,
        agent=caller.agent,
    )


def _pre_auth(ports: Ports, pending: PendingSignIn, saml_state: str | None = None) -> PreAuthToken:
    claims = PreAuthClaims(
        id=pending.id, user_id=pending.user_id, issued_at=pending.created_at, expires_at=pending.expires_at, saml_state=saml_state
    )
    expires_in = int(pending.expires_at.timestamp()) - int(pending.created_at.timestamp())
    return PreAuthToken(ports.tokens.sign_pre_auth(claims), expires_in)


async def _take_part(ports: Ports, signed_in: SignedIn) -> None:
    if signed_in.session.service is not None:
        await take_part(ports, signed_in, signed_in.session.service.org_id)


async def take_part(ports: Ports, signed_in: SignedIn, org_id: UUID) -> None:
    """A member who signs in to a service of the organization with their password takes part in it (the terms of security.md)."""
    async with ports.storage.autocommit() as at_once:
        await at_once.members.confirm(org_id, signed_in.session.user_id, signed_in.session.created_at)


async def _failed(ports: Ports, caller: Caller, reason: LoginFailure, provider: str, user_id: UUID | None) -> None:
    ports.metrics.login_failed(reason)
    place = ports.places.of(caller.address)  # also for an address that nobody has, which must take as long (security.md B-2)
    if user_id is not None:
        async with ports.storage.autocommit() as count:
            await count.logins.failed(user_id, provider, ports.clock.now(), caller.address, caller.agent, place)
