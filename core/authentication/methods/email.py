"""Sign-in by email: one email has a code and a link, and the user can use only the code or the link, once.

The code works only for the client that asked: the browser of the flow, or the API client with its secret. So
an attacker who gets a code, such as by phone, cannot use it elsewhere. The link works in every browser that
opens it, and signs in that browser. It never signs in the browser that asked: an attacker could ask, and wait
for the user to open the link.

A request costs the same for every address. The mailer looks up the account later (security B-2, docs/adr/0003).
"""

import hmac
from dataclasses import dataclass, field, replace

from core.accounts import attempt_limits, mailbox
from core.accounts.model import accounts, devices, email_queue
from core.accounts.model import attempt_limits as attempt_limits_model
from core.accounts.model.attempt_limits import SecretKind
from core.accounts.model.devices import PresentedDevice
from core.applications.model.services import Service
from core.authentication.flow import flows, methods
from core.authentication.flow.model import FLOW_TTL, ChallengeOrigin, EmailChallenge, Flow, FlowEnded
from core.authentication.model import login
from core.kernel import proofs, values
from core.kernel.causes import Caller
from core.kernel.errors import refuse
from ports import Ports
from ports.storage import Transaction


async def start(ports: Ports, caller: Caller, flow: Flow, email: values.Email, service: Service | None) -> EmailChallenge:
    """Start an email on a flow, and queue it. It has the branding of the service's organization.

    The service of the sign-in decides whether it is offered, or the platform if the service chooses nothing.

    Raises: EmailSignInOff, FlowEnded.
    """
    _check_is_on(ports, service)
    now = ports.clock.now()
    org_id, service_id = (None, None) if service is None else (service.org_id, service.id)
    mail = email_queue.new_email(email_queue.EmailKind.EMAIL_SIGN_IN, email, now, org_id=org_id)
    end = now + ports.policy.email_sign_in_ttl
    challenge = EmailChallenge(
        id=mail.id,
        flow=replace(flow, org_id=org_id, service_id=service_id, expires_at=now + FLOW_TTL if flow.in_browser else end),
        email=email,
        origin=ChallengeOrigin(caller.address, caller.agent, ports.geoip.locate(caller.address)),
        begun_at=now,
        expires_at=end,
    )
    async with ports.storage.transaction(by=caller) as tx:
        if not await tx.flows.start(challenge):
            raise FlowEnded
        await tx.email_queue.add(mail)
    return replace(challenge, flow=replace(challenge.flow, is_stored=True))


async def find_of_flow(ports: Ports, flow: Flow) -> EmailChallenge | None:
    """Return the newest email of a browser's flow, while its code can be used."""
    async with ports.storage.reading() as read:
        challenge = await read.flows.email_of(flow.id, flow.browser_hash or b"", ports.clock.now())
    return None if challenge is None or challenge.flow.failures >= login.MAX_EMAIL_CODE_ATTEMPTS else challenge


async def find_by_link(ports: Ports, token: str) -> EmailChallenge:
    """Return the email with this link. Nothing is used up."""
    async with ports.storage.reading() as read:
        return await read.flows.email_by_link(values.digest(token), ports.clock.now()) or refuse(accounts.LinkInvalid)


def describe_origin(ports: Ports, challenge: EmailChallenge) -> login.EmailSignInOrigin:
    """Return where the request of an email came from."""
    origin = challenge.origin
    user_agent, location = ports.user_agents.parse(origin.agent), origin.location
    return login.EmailSignInOrigin(
        browser=login.safe_browser_name(f"{user_agent.browser} on {user_agent.os}"),
        location=None if location is None else ", ".join(filter(None, (location.city, location.country))),
        address=origin.address,
        at=challenge.begun_at,
    )


@dataclass(frozen=True, slots=True)
class EmailCode:
    """The code in a flow's newest email. For an API client, the flow has at least its secret."""

    code: str = field(repr=False)

    async def verify(self, ports: Ports, caller: Caller, flow: Flow, client: PresentedDevice) -> methods.Proved:
        """Check the code. It is not used up.

        An address without an account gets the same response after the same work as a wrong code (security B-1, B-2).
        """
        code, now, kind = login.normalize_code(self.code), ports.clock.now(), SecretKind.EMAIL_CODE
        limit = attempt_limits_model.attempt_limit(ports.policy, kind)
        async with ports.storage.autocommit() as statements:
            attempt = await statements.flows.count_email_attempt(
                flow.id if flow.in_browser else None,
                flow.browser_hash or flow.secret_hash or b"",
                devices.known_by(client),
                login.MAX_EMAIL_CODE_ATTEMPTS,
                limit,
                now,
            ) or refuse(login.EmailSignInEnded)
        challenge = attempt.challenge
        # Without an account, the id of the challenge matches none, and the statement takes as long.
        user_id = challenge.user_id or challenge.id
        if attempt.blocked_until is not None:
            ended = attempt.blocked_until
            await methods.record_failure(
                ports, caller, login.LoginFailure.LOCKED, proofs.Method.EMAIL, user_id, challenge.flow.application, blocked_until=ended
            )
        attempt_limits_model.raise_if_locked(kind, attempt.blocked_until, now)
        is_right = hmac.compare_digest(code, attempt.code or "")
        if challenge.user_id is None or not is_right:
            await methods.record_failure(
                ports, caller, login.LoginFailure.EMAIL_CODE, proofs.Method.EMAIL, user_id, challenge.flow.application
            )
            raise login.LastEmailCodeWrong if challenge.flow.failures + 1 == login.MAX_EMAIL_CODE_ATTEMPTS else login.EmailCodeWrong
        await attempt_limits.clear(ports, kind, attempt.subject)  # the code was right, even if the sign-in fails
        return await _proved(ports, challenge, challenge.flow)


@dataclass(frozen=True, slots=True)
class EmailLink:
    """The email whose link a browser opened. Its user has confirmed the sign-in."""

    challenge: EmailChallenge

    async def verify(self, ports: Ports, caller: Caller, flow: Flow, client: PresentedDevice) -> methods.Proved:
        """Return what uses the email up."""
        return await _proved(ports, self.challenge, flow)


async def _proved(ports: Ports, challenge: EmailChallenge, flow: Flow) -> methods.Proved:
    """Return what uses an email up. Raises: EmailSignInOff, ServiceNotFound; in the transaction: EmailSignInEnded.

    The email proves the mailbox. An account with an unverified address becomes verified, and keeps
    nothing that an earlier owner of the account left behind (security A-7).
    """
    now, service = ports.clock.now(), None
    if challenge.flow.org_id is not None and challenge.flow.service_id is not None:
        async with ports.storage.reading() as read:
            service = await read.services.by_id(challenge.flow.org_id, challenge.flow.service_id)
    _check_is_on(ports, service)  # again: it may have been switched off

    async def lock(tx: Transaction, _: Caller, __: methods.SendBehind) -> tuple[accounts.Account, None]:
        account = await tx.accounts.lock(challenge.user_id or challenge.id) or refuse(login.EmailSignInEnded)
        # After an address change, the old mailbox's owner must not get in (security ).
        if not account.is_usable or account.email != challenge.email or not await tx.flows.redeem_email(challenge.id, now):
            raise login.EmailSignInEnded
        if account.email_verified_at is None:
            account = await mailbox.prove_mailbox_by_sign_in(tx, account, now) or refuse(login.EmailSignInEnded)
        await tx.attempt_limits.clear_of_account(SecretKind.EMAIL_CODE, account.id, account.email)
        return account, None

    return methods.Proved(
        proof=proofs.Proof(proofs.Method.EMAIL, now), flow=await flows.with_service(ports, flow), lock=lock, is_one_time=True
    )


def _check_is_on(ports: Ports, service: Service | None) -> None:
    if not ports.policy.offers_email(None if service is None else service.email_sign_in):
        raise login.EmailSignInOff
