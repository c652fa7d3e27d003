"""The start of a session after all required factors were verified: devices, login records and events."""

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime

from core.accounts import devices
from core.accounts.model import email_queue
from core.accounts.model.accounts import Account
from core.accounts.model.devices import Device
from core.authentication import account_recovery, events, sessions
from core.authentication.model import login
from core.authentication.model.openid import Scope
from core.authentication.model.sessions import NO_ENTITLEMENT, OpenIdSubject, SessionStart, TokenPair, TokenSubject
from core.authentication.service_access import enroll_end_user
from core.authentication.tokens import issuing
from core.kernel import values
from core.kernel.callers import proofs_at
from core.kernel.proofs import Method, Proofs, Strength, methods_of, recent, restriction_of, seen_in, strength_of
from core.tenancy import platform_sign_in_policy
from ports import Ports
from ports.storage import Transaction


async def start_session(ports: Ports, tx: Transaction, sign_in: login.VerifiedSignIn, now: datetime) -> login.SignedIn:
    """Start the session of a sign-in after all required factors were verified."""
    person, account = sign_in.person, sign_in.account
    entitlement, device = NO_ENTITLEMENT, sign_in.device.device
    if sign_in.service is not None:
        service, entitlement = await enroll_end_user(tx, sign_in.service, account.id, now)
        if service.refuses_passwords:  # the service can have changed while the password was hashed
            raise login.NeedsCodeFlow
    methods = methods_of(sign_in.proofs)
    own = seen_in(sign_in.proofs, None, now)  # an organization's provider says nothing about the account's own factors
    second_factor = strength_of(recent(own, now)) >= Strength.TWO  # an earlier second factor did not prove this device
    device_token = await devices.remember_device(tx, sign_in.device, methods, now, second_factor=second_factor, trust=sign_in.trusts_device)
    start = SessionStart(
        id=person.session_id,
        user_id=account.id,
        caller=person,
        service=sign_in.service,
        device_id=device.id,
        proofs=sign_in.proofs,
        ends_by=sign_in.ends_by,
        risk_is_high=device.risk.is_high,
    )
    session, secret = sessions.new_session(ports, start, now), values.new_secret()
    if sign_in.in_browser:
        await tx.logins.begin_browser_session(session, values.digest(secret), device, for_application=sign_in.for_application)
    else:
        await tx.logins.begin_session(session, values.digest(secret), device, for_application=sign_in.for_application)
    if not sign_in.device.was_unproved:  # the user got the email about the first of these sign-ins
        await _warn_of_risk(tx, account, device, sign_in.proofs, now)
    if sign_in.device.has_recovery:
        await account_recovery.cancel_by_sign_in(ports, tx, person, account, own, now)
    if account.is_platform_owner:
        await platform_sign_in_policy.ensure(tx, now)
    restriction = restriction_of(sign_in.proofs)
    tx.record(events.signed_in(account.id, methods, sign_in.service, is_member=sign_in.device.is_member, restricted_to=restriction))
    return login.SignedIn(session, account.email, person.email_verified, entitlement, secret, device_token)


async def start_granted_session(ports: Ports, tx: Transaction, redeemed: login.RedeemedGrant, now: datetime) -> login.SignedIn:
    """Start the session of an application that redeemed an authorization code or a device code. Its service has enrolled the user."""
    account, service, device = redeemed.account, redeemed.service, redeemed.new_device
    seen = proofs_at(service, redeemed.proofs, now)
    # A session that began with a deleted passkey has no method.
    proofs = tuple(replace(proof, method=proof.method or Method.PASSWORD) for proof in seen)
    start = SessionStart(
        id=redeemed.person.session_id,
        user_id=account.id,
        caller=redeemed.person,
        service=service,
        device_id=redeemed.device_id,
        proofs=proofs,
        grant=redeemed.grant,
        browser_session_id=redeemed.browser_session_id,
        openid=redeemed.openid,
        key_thumbprint=redeemed.key.thumbprint if redeemed.key is not None and redeemed.key.binds_refresh_token else None,
        ends_by=redeemed.ends_by,
        risk_is_high=redeemed.risk_is_high,
    )
    session, secret = sessions.new_session(ports, start, now), values.new_secret()
    facts = None
    if redeemed.openid is not None and redeemed.openid.scope:
        with_groups = Scope.GROUPS in redeemed.openid.consent_scopes
        facts = tx.openid_facts.load(account.id, service.id if service else None, now, with_groups=with_groups)
    await tx.logins.begin_session(session, values.digest(secret), device)
    if device is not None:
        await _warn_of_risk(tx, account, device, proofs, now)
    tx.record(events.signed_in(account.id, methods_of(proofs), service))
    is_verified = account.email_verified_at is not None
    thumbprint = None if redeemed.key is None else redeemed.key.thumbprint
    return login.SignedIn(session, account.email, is_verified, redeemed.entitlement, secret, None, facts, redeemed.nonce, thumbprint)


async def issue_first_tokens(ports: Ports, signed_in: login.SignedIn, scope: Collection[str] | None = None) -> TokenPair:
    """Return the first token pair of a session that is not a browser session. `scope` narrows the scopes of these tokens."""
    session, facts = signed_in.session, signed_in.user_facts
    openid = OpenIdSubject.narrowed(session.openid, scope, None if facts is None else await facts, signed_in.nonce)
    subject = TokenSubject(
        session_id=session.id,
        user_id=session.user_id,
        email=signed_in.email,
        email_verified=signed_in.email_verified,
        ends_at=session.ends_at,
        service=session.service,
        entitlement=signed_in.entitlement,
        proofs=session.proofs,
        openid=openid,
        key_thumbprint=signed_in.key_thumbprint,
    )
    return issuing.issue_tokens(ports, subject, signed_in.secret, session.created_at)


async def _warn_of_risk(tx: Transaction, account: Account, device: Device, proofs: Proofs, now: datetime) -> None:
    """Queue an email about a risky sign-in. With a second factor, or a passkey that verified its user, it proves enough."""
    if device.risk.is_high and not account.second_factors and strength_of(proofs) < Strength.TWO:
        await tx.email_queue.add(email_queue.new_email(email_queue.EmailKind.UNUSUAL_SIGN_IN, account.email, now))
