"""Devices that cannot show a sign-in page, and are signed in from elsewhere (identity.md section 4.9; decisions, points 91 and 93 to 99;
security.md section 13; RFC 8628).

A device asks for a pair of codes. A person types the short one on our page, sees who asks and from where, and approves or denies it; until
then the device asks for its tokens with the long one.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from core.accounts import attempt_limits, attempt_limits_rules, devices
from core.accounts.attempt_limits_rules import Secret
from core.accounts.devices_rules import Client, DeviceType
from core.accounts.own_account import lock_own_account
from core.applications.services_rules import ServiceNotFound
from core.authentication import login, login_rules
from core.authentication.login_failures import LoginFailure
from core.authentication.sessions_rules import Grant
from core.federation.oauth import authorization as oauth
from core.federation.oauth import authorization_rules as oauth_rules
from core.kernel.errors import ClientInvalid, NotFound, OrganizationNotActive, refuse
from core.kernel.principals import BlockedByDirectory, OrganizationStatus, Person, require_mfa
from core.kernel.values import digest, new_id, new_secret

if TYPE_CHECKING:
    from uuid import UUID

    from core.authentication.login_rules import SignedIn
    from core.federation.oauth.authorization_rules import AuthorizationRequest
    from core.kernel.principals import Caller
    from ports import Ports
from core.federation.oauth.device_flow_rules import (
    USER_CODE_ATTEMPTS,
    USER_CODE_LENGTH,
    USER_CODE_ALPHABET,
    CODE_TTL,
    ApplicationMissing,
    DeviceAuthorization,
    DeviceCode,
    DeviceCodeDenied,
    DeviceCodeExpired,
    DeviceCodeInvalid,
    DeviceCodePending,
    DeviceRequestStatus,
    SlowDown,
    UserCodeUnknown,
    DeviceDecision,
    DeviceRequest,
    normalize_user_code,
    format_user_code,
)

# The device


async def request_codes(ports: Ports, caller: Caller, wanted: AuthorizationRequest) -> DeviceAuthorization:
    """A pair of codes for a device of the application that is wanted.

    Raises ApplicationNotNamed, ClientInvalid, OrganizationNotFound, OrganizationNotActive, ServiceNotFound, ClientNotThatService,
    ServiceHalfNamed, ChallengeMissing, ChallengeInvalid.
    """
    async with ports.storage.reading() as read:
        try:
            service, context = await oauth.find_service(read, wanted) or refuse(ApplicationMissing)
        except ServiceNotFound:
            raise ClientInvalid if wanted.org is None else ServiceNotFound from None
    oauth_rules.check_code_challenge(context, wanted.code_challenge, wanted.code_challenge_method)
    now, device_code = ports.clock.now(), new_secret()
    async with ports.storage.transaction(by=caller) as tx:
        for _ in range(USER_CODE_ATTEMPTS):
            user_code = "".join(secrets.choice(USER_CODE_ALPHABET) for _ in range(USER_CODE_LENGTH))
            code = DeviceCode(
                device_code_hash=digest(device_code),
                user_code_hash=digest(user_code),
                service=context,
                code_challenge=wanted.code_challenge,
                address=caller.address,
                agent=caller.agent,
                created_at=now,
                expires_at=now + CODE_TTL,
            )
            if await tx.device_codes.add(code):
                return DeviceAuthorization(device_code, format_user_code(user_code), service.device_activation_uri)
    raise ServiceNotFound  # any more


async def redeem(ports: Ports, caller: Caller, device_code: str, client_id: UUID | None, code_verifier: str | None) -> SignedIn:
    """The session that a device gets, once, after somebody has approved it (security.md V-4, Z-1). No secret is asked; a client id that is
    sent must be the right one, and so must the verifier if the code was asked for with a challenge.

    `caller` is the device, which the person has from now on as one of theirs. Each poll is counted before anything is said.
    Raises DeviceCodeInvalid, DeviceCodeExpired, DeviceCodeDenied, SlowDown, DeviceCodePending, OrganizationNotActive.
    """
    now, device_code_hash = ports.clock.now(), digest(device_code)
    challenge = None if code_verifier is None else oauth_rules.s256_challenge(code_verifier)
    async with ports.storage.autocommit() as count:
        poll = await count.device_codes.poll(device_code_hash, client_id, challenge, now) or refuse(DeviceCodeInvalid)
    # The service may have come to be of a kind that keeps no secret since the code was asked for.
    lacks_pkce = poll.service.is_public and challenge is None
    if poll.is_dead or not poll.fits or lacks_pkce or poll.status is DeviceRequestStatus.REDEEMED:
        ports.metrics.login_failed(LoginFailure.DEVICE_CODE)
        raise DeviceCodeInvalid
    if poll.expires_at <= now:
        raise DeviceCodeExpired
    if poll.status is DeviceRequestStatus.DENIED:
        raise DeviceCodeDenied
    if poll.is_early:
        raise SlowDown
    if poll.service.status is not OrganizationStatus.ACTIVE:
        raise OrganizationNotActive
    account, session_id = poll.account, poll.session_id
    if account is None or session_id is None:
        raise DeviceCodePending
    person = Person(
        user_id=account.id,
        email=account.email,
        email_verified=account.email_verified_at is not None,
        session_id=new_id(),
        service=poll.service,
        address=caller.address,
        agent=caller.agent,
    )
    look = devices.look(ports, person, Client(device_type=DeviceType.CLI))
    try:
        async with ports.storage.transaction(by=person, in_session=False) as tx:
            locked = await tx.accounts.lock(account.id) or refuse(DeviceCodeInvalid)
            # A reset, a deactivation, or signing out may have come after the approval: what that ended begins nothing any more.
            if await tx.sessions.load_session_context(session_id, account.id, None, now) is None:
                ports.metrics.login_failed(LoginFailure.DEVICE_CODE)
                raise DeviceCodeDenied
            if not await tx.device_codes.redeem(device_code_hash, poll.service, now):
                raise DeviceCodeInvalid
            arrival = await devices.arrive(tx, account.id, look, poll.service.org_id, now)
            await devices.welcome(tx, arrival, now)
            provider = poll.provider or login_rules.PASSWORD  # a session that an earlier release began does not say
            return await login.begin_at_service(
                ports, tx, person, locked, poll.service, provider, arrival.device.id, Grant.DEVICE_CODE, now, arrived=arrival.device
            )
    except NotFound:  # the service, or all of its organization, by now
        raise DeviceCodeInvalid from None


# The person


async def find_request(ports: Ports, caller: Person, user_code: str, network: str) -> DeviceRequest:
    """The request with this user code, for the caller to judge; `network` is what counts as one address.

    A code that no device was given counts as a guess, at the account and at the address (security.md V-2).
    Raises UserCodeUnknown, DeviceCodeExpired, OrganizationNotActive, TooManyGuesses.
    """
    at_address, at_account = (digest(f"{kind} {whose}") for kind, whose in (("address", network), ("account", caller.user_id)))
    letters, now = normalize_user_code(user_code), ports.clock.now()
    # Counted before it is looked at, and taken back when it was right: clearing the count would let everybody who has a device of their own
    # guess at those of others for ever.
    await attempt_limits.charge(ports, Secret.USER_CODE, at_address)
    try:
        await attempt_limits.charge(ports, Secret.USER_CODE, at_account)
    except attempt_limits_rules.TooManyGuesses:
        await attempt_limits.take_back(ports, Secret.USER_CODE, at_address)
        raise
    async with ports.storage.reading() as read:
        waiting = None if letters is None else await read.device_codes.waiting(digest(letters))
    if waiting is None:
        ports.metrics.login_failed(LoginFailure.DEVICE_CODE)
        raise UserCodeUnknown
    for subject in (at_address, at_account):  # also where it comes twice, or too late: whoever has it was shown it
        await attempt_limits.take_back(ports, Secret.USER_CODE, subject)
    if waiting.is_dead or waiting.status is not DeviceRequestStatus.PENDING:
        ports.metrics.login_failed(LoginFailure.DEVICE_CODE)
        raise UserCodeUnknown
    if waiting.expires_at <= now:
        raise DeviceCodeExpired
    if waiting.organization_status is not OrganizationStatus.ACTIVE:
        raise OrganizationNotActive
    return waiting


async def decide(ports: Ports, caller: Person, user_code: str, verdict: DeviceDecision, network: str) -> DeviceRequest:
    """Approve or deny the request with this user code, once, in a session of the caller's own in which all factors were shown
    (security.md V-3). What it was before is returned.

    Raises what `find` raises, UserCodeUnknown also when somebody else was faster, MfaMissing, BlockedByDirectory, and SessionEnded.
    """
    if verdict is DeviceDecision.APPROVE:
        require_mfa(caller)
    waiting = await find_request(ports, caller, user_code, network)
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        await lock_own_account(tx, caller, now)
        if verdict is DeviceDecision.APPROVE and await tx.scim_users.is_blocked(waiting.org_id, caller.user_id):
            raise BlockedByDirectory
        session_id = caller.session_id if verdict is DeviceDecision.APPROVE else None
        if not await tx.device_codes.answer(digest(normalize_user_code(user_code) or ""), verdict.status, session_id, now):
            raise UserCodeUnknown
    if verdict is DeviceDecision.DENY:
        ports.metrics.login_failed(LoginFailure.DEVICE_CODE)
    return waiting
