"""Devices that cannot show a sign-in page, and are signed in from elsewhere (identity.md section 4.9; decisions, points 91 and 93 to 99;
security.md section 13; RFC 8628).

A device asks for a pair of codes. A person types the short one on our page, sees who asks and from where, and approves or denies it; until
then the device asks for its tokens with the long one.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode
from uuid import UUID

from core import devices, guesses, login, oauth
from core.access import DirectoryForbids, OrganizationStatus, Person, enter, require_mfa
from core.devices import Client, DeviceType
from core.errors import ClientInvalid, GrantInvalid, Invalid, NotFound, OrganizationNotActive, refuse
from core.guesses import Secret
from core.login_failures import LoginFailure
from core.services import ServiceNotFound
from core.sessions import Grant
from core.values import digest, new_id, new_secret

if TYPE_CHECKING:
    from core.access import Caller, ServiceContext
    from core.accounts import Account
    from core.login import SignedIn
    from core.oauth import AuthorizationRequest
    from ports import Ports

VERIFY: Final = "/auth/device/verify"
TTL: Final = timedelta(minutes=5)  # of both codes (organizations.md section 8)
INTERVAL: Final = 5  # seconds between two polls, ...
SLOWER: Final = 5  # ... and by how many of them each poll that comes too early adds to that (RFC 8628 section 3.5)
ERRORS: Final = 5  # how many end a device code (security.md V-2)
# No vowels, of which words are made, and nothing that looks like a digit (RFC 8628 section 6.1): 20 to the power of 8 codes.
LETTERS: Final = "BCDFGHJKLMNPQRSTVWXZ"
LENGTH: Final = 8
CHANCES: Final = 5  # to be given a user code that no other device has, which is had at once but in one of some million cases
LONGEST: Final = 64  # characters of what is typed, with whatever stands between the letters


class ApplicationNotNamed(Invalid):
    """Say which application it is: send client_id, or org and service."""


class UserCodeUnknown(Invalid):
    """No device waits with this code. Type it as the device shows it, or let the device begin again."""


class DeviceCodeExpired(Invalid):
    """The code has expired. Let the device begin again."""

    code = "DEVICE_CODE_EXPIRED"
    oauth_error = "expired_token"


class DeviceCodePending(Invalid):
    """Nobody has approved this device yet. Ask again after the interval."""

    code = "DEVICE_CODE_PENDING"
    oauth_error = "authorization_pending"


class SlowDown(Invalid):
    """You asked too early. From now on wait five seconds longer each time."""

    code = "DEVICE_CODE_PENDING"  # whoever reads this one only goes on asking, too
    oauth_error = "slow_down"


class DeviceCodeDenied(Invalid):
    """This device was not let in. Begin again at POST /auth/device/code."""

    oauth_error = "access_denied"


class DeviceCodeInvalid(GrantInvalid):
    """The device code is unknown, was used, or is another client's or needs another code_verifier. Begin again at /auth/device/code."""


class RequestStatus(StrEnum):
    """What became of a request; whether it has expired is another question."""

    PENDING = "pending"
    APPROVED = "approved"
    DENIED = "denied"
    REDEEMED = "redeemed"


class Verdict(StrEnum):
    """What a person says to it."""

    APPROVE = "approve"
    DENY = "deny"

    @property
    def status(self) -> RequestStatus:
        """What the request is then."""
        return RequestStatus.APPROVED if self is Verdict.APPROVE else RequestStatus.DENIED


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCode:
    """A request of a device, as it begins: both codes by their SHA-256, the service, the S256 challenge if it sent one, and from
    where it came. Times are UTC."""

    device_code_hash: bytes = field(repr=False)
    user_code_hash: bytes = field(repr=False)
    service: ServiceContext
    code_challenge: str | None
    address: str | None
    agent: str | None
    created_at: datetime
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Begun:
    """What the device is told, once. `user_code` is written XXXX-XXXX; `verification_uri` is None where our own page is meant."""

    device_code: str = field(repr=False)
    user_code: str = field(repr=False)
    verification_uri: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A request, as it is shown to whoever has its user code. Times are UTC; `is_dead` says that too many errors were made with it."""

    service: str  # by name, ...
    org_id: UUID
    organization: str  # ... as this
    organization_status: OrganizationStatus
    address: str | None
    agent: str | None
    created_at: datetime
    expires_at: datetime
    status: RequestStatus
    is_dead: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Poll:
    """A request, as one poll of its device finds it. Times are UTC.

    `fits`: the client and the verifier are those that the code is for. `is_early`: the interval since the poll before was not over.
    `account`, `session_id` and `provider` are those of whoever approved it, None before that.
    """

    service: ServiceContext
    status: RequestStatus
    expires_at: datetime
    is_dead: bool
    fits: bool
    is_early: bool
    session_id: UUID | None
    provider: str | None
    account: Account | None


def page(user_code: str, at: str = VERIFY) -> str:
    """Where a request is approved, with its code filled in: on our page, or on a service's own one."""
    return f"{at}{'&' if '?' in at else '?'}{urlencode({'user_code': user_code})}"


def normal(user_code: str) -> str | None:
    """What of a typed code counts: its eight letters, without case and whatever stands between them (RFC 8628 section 6.1); None if it can
    be none."""
    if len(user_code) > LONGEST:
        return None
    letters = "".join(letter for letter in user_code.upper() if letter.isalnum())
    return letters if len(letters) == LENGTH and set(letters) <= set(LETTERS) else None


def shown(user_code: str) -> str:
    """A code as people read it: XXXX-XXXX; whatever can be none, as it is."""
    letters = normal(user_code)
    return user_code if letters is None else f"{letters[:4]}-{letters[4:]}"


# The device


async def begin(ports: Ports, caller: Caller, wanted: AuthorizationRequest) -> Begun:
    """A pair of codes for a device of the application that is wanted.

    Raises ApplicationNotNamed, ClientInvalid, OrganizationNotFound, OrganizationNotActive, ServiceNotFound, ClientNotThatService,
    ServiceHalfNamed, ChallengeMissing, ChallengeInvalid.
    """
    async with ports.storage.reading() as read:
        try:
            service, context = await oauth.application(read, wanted) or refuse(ApplicationNotNamed)
        except ServiceNotFound:
            raise ClientInvalid if wanted.org is None else ServiceNotFound from None
    oauth.check_challenge(context, wanted.code_challenge, wanted.code_challenge_method)
    now, device_code = ports.clock.now(), new_secret()
    async with ports.storage.transaction(by=caller) as tx:
        for _ in range(CHANCES):
            user_code = "".join(secrets.choice(LETTERS) for _ in range(LENGTH))
            code = DeviceCode(
                device_code_hash=digest(device_code),
                user_code_hash=digest(user_code),
                service=context,
                code_challenge=wanted.code_challenge,
                address=caller.address,
                agent=caller.agent,
                created_at=now,
                expires_at=now + TTL,
            )
            if await tx.device_codes.add(code):
                return Begun(device_code, shown(user_code), service.device_activation_uri)
    raise ServiceNotFound  # any more


async def redeem(ports: Ports, caller: Caller, device_code: str, client_id: UUID | None, code_verifier: str | None) -> SignedIn:
    """The session that a device gets, once, after somebody has approved it (security.md V-4, Z-1). No secret is asked; a client id that is
    sent must be the right one, and so must the verifier if the code was asked for with a challenge.

    `caller` is the device, which the person has from now on as one of theirs. Each poll is counted before anything is said.
    Raises DeviceCodeInvalid, DeviceCodeExpired, DeviceCodeDenied, SlowDown, DeviceCodePending, OrganizationNotActive.
    """
    now, device_code_hash = ports.clock.now(), digest(device_code)
    challenge = None if code_verifier is None else oauth.challenge_of(code_verifier)
    async with ports.storage.counting() as count:
        poll = await count.device_codes.poll(device_code_hash, client_id, challenge, now) or refuse(DeviceCodeInvalid)
    # The service may have come to be of a kind that keeps no secret since the code was asked for.
    lacks_pkce = poll.service.is_public and challenge is None
    if poll.is_dead or not poll.fits or lacks_pkce or poll.status is RequestStatus.REDEEMED:
        ports.metrics.login_failed(LoginFailure.DEVICE_CODE)
        raise DeviceCodeInvalid
    if poll.expires_at <= now:
        raise DeviceCodeExpired
    if poll.status is RequestStatus.DENIED:
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
            if await tx.sessions.standing(session_id, account.id, None, now) is None:
                ports.metrics.login_failed(LoginFailure.DEVICE_CODE)
                raise DeviceCodeDenied
            if not await tx.device_codes.redeem(device_code_hash, poll.service, now):
                raise DeviceCodeInvalid
            arrival = await devices.arrive(tx, account.id, look, poll.service.org_id, now)
            await devices.welcome(tx, arrival, now)
            provider = poll.provider or login.PASSWORD  # a session that an earlier release began does not say
            return await login.begin_at_service(
                ports, tx, person, locked, poll.service, provider, arrival.device.id, Grant.DEVICE_CODE, now, arrived=arrival.device
            )
    except NotFound:  # the service, or all of its organization, by now
        raise DeviceCodeInvalid from None


# The person


async def find(ports: Ports, caller: Person, user_code: str, network: str) -> Waiting:
    """The request with this user code, for the caller to judge; `network` is what counts as one address.

    A code that no device was given counts as a guess, at the account and at the address (security.md V-2).
    Raises UserCodeUnknown, DeviceCodeExpired, OrganizationNotActive, TooManyGuesses.
    """
    at_address, at_account = (digest(f"{kind} {whose}") for kind, whose in (("address", network), ("account", caller.user_id)))
    letters, now = normal(user_code), ports.clock.now()
    # Counted before it is looked at, and taken back when it was right: clearing the count would let everybody who has a device of their own
    # guess at those of others for ever.
    await guesses.charge(ports, Secret.USER_CODE, at_address)
    try:
        await guesses.charge(ports, Secret.USER_CODE, at_account)
    except guesses.TooManyGuesses:
        await guesses.take_back(ports, Secret.USER_CODE, at_address)
        raise
    async with ports.storage.reading() as read:
        waiting = None if letters is None else await read.device_codes.waiting(digest(letters))
    if waiting is None:
        ports.metrics.login_failed(LoginFailure.DEVICE_CODE)
        raise UserCodeUnknown
    for subject in (at_address, at_account):  # also where it comes twice, or too late: whoever has it was shown it
        await guesses.take_back(ports, Secret.USER_CODE, subject)
    if waiting.is_dead or waiting.status is not RequestStatus.PENDING:
        ports.metrics.login_failed(LoginFailure.DEVICE_CODE)
        raise UserCodeUnknown
    if waiting.expires_at <= now:
        raise DeviceCodeExpired
    if waiting.organization_status is not OrganizationStatus.ACTIVE:
        raise OrganizationNotActive
    return waiting


async def answer(ports: Ports, caller: Person, user_code: str, verdict: Verdict, network: str) -> Waiting:
    """Approve or deny the request with this user code, once, in a session of the caller's own in which all factors were shown
    (security.md V-3). What it was before is returned.

    Raises what `find` raises, UserCodeUnknown also when somebody else was faster, MfaMissing, DirectoryForbids, and SessionEnded.
    """
    if verdict is Verdict.APPROVE:
        require_mfa(caller)
    waiting = await find(ports, caller, user_code, network)
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        await enter(tx, caller, now)
        if verdict is Verdict.APPROVE and await tx.scim_users.is_kept_out(waiting.org_id, caller.user_id):
            raise DirectoryForbids
        session_id = caller.session_id if verdict is Verdict.APPROVE else None
        if not await tx.device_codes.answer(digest(normal(user_code) or ""), verdict.status, session_id, now):
            raise UserCodeUnknown
    if verdict is Verdict.DENY:
        ports.metrics.login_failed(LoginFailure.DEVICE_CODE)
    return waiting
