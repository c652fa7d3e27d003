"""Sign-in by email: one email has a code and a link, and only one of them can be used, once.

The code works only for the client that asked, which has the secret of the request. So an attacker who
gets a code, such as by phone, cannot use it elsewhere. The link works in every browser that opens it,
and signs in that browser. It never signs in the browser that asked: an attacker could ask, and wait for
the user to open the link.

A request costs the same for every address. The mailer looks up the account later (security B-2,
docs/adr/0003).
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.accounts import attempt_limits, mailbox
from core.accounts.model import attempt_limits as attempt_limits_model
from core.accounts.model import devices
from core.accounts.model.accounts import Account, LinkInvalid
from core.accounts.model.attempt_limits import SecretKind
from core.accounts.model.devices import PresentedDevice
from core.accounts.model.email_queue import EmailKind, new_email
from core.applications.model.services import Service, ServiceNotFound
from core.authentication.flow.methods import Proved
from core.authentication.flow.model import Flow
from core.authentication.flow.prove import record_failure
from core.authentication.model.login import (
    EMAIL,
    MAX_EMAIL_CODE_ATTEMPTS,
    EmailCodeWrong,
    EmailSignIn,
    EmailSignInEnded,
    EmailSignInOrigin,
    LoginFailure,
    RequestedEmailSignIn,
    normalize_code,
    safe_browser_name,
)
from core.kernel.causes import Caller
from core.kernel.errors import refuse
from core.kernel.proofs import Method, Proof
from core.kernel.values import Email, digest, new_secret

if TYPE_CHECKING:
    from ports import Ports
    from ports.storage import Transaction


async def add_request(
    ports: Ports, caller: Caller, email: Email, service: Service | None, *, in_browser: bool, after: str, saml_state: str | None = None
) -> RequestedEmailSignIn:
    """Store a request and queue its email, which has the branding of the service's organization. Raises: ServiceNotFound."""
    now, secret = ports.clock.now(), new_secret()
    mail = new_email(EmailKind.EMAIL_SIGN_IN, email, now, org_id=None if service is None else service.org_id)
    sign_in = EmailSignIn(
        id=mail.id,
        in_browser=in_browser,
        email=email,
        org_id=mail.org_id,
        service_id=None if service is None else service.id,
        after=after,
        saml_state=saml_state,
        address=caller.address,
        agent=caller.agent,
        location=ports.geoip.locate(caller.address),
        created_at=now,
        expires_at=now + ports.policy.email_sign_in_ttl,
    )
    async with ports.storage.transaction(by=caller) as tx:
        if not await tx.email_sign_ins.add(sign_in, digest(secret)):
            raise ServiceNotFound  # it was just deleted
        await tx.email_queue.add(mail)
    return RequestedEmailSignIn(secret, int(ports.policy.email_sign_in_ttl.total_seconds()))


async def find_in_browser(ports: Ports, secret: str) -> EmailSignIn | None:
    """Return the request that a browser with this secret made, while its code or link can be used."""
    async with ports.storage.reading() as read:
        return await read.email_sign_ins.by_request(digest(secret), ports.clock.now())


async def find_by_link(ports: Ports, token: str) -> EmailSignIn:
    """Return the request of the email with this link. Nothing is used up. Raises: LinkInvalid."""
    async with ports.storage.reading() as read:
        return await read.email_sign_ins.by_link(digest(token), ports.clock.now()) or refuse(LinkInvalid)


def describe_origin(ports: Ports, sign_in: EmailSignIn) -> EmailSignInOrigin:
    """Return where the request came from."""
    user_agent, location = ports.user_agents.parse(sign_in.agent), sign_in.location
    return EmailSignInOrigin(
        browser=safe_browser_name(f"{user_agent.browser} on {user_agent.os}"),
        location=None if location is None else ", ".join(filter(None, (location.city, location.country))),
        address=sign_in.address,
        at=sign_in.created_at,
    )


async def verify_code(ports: Ports, caller: Caller, secret: str, code: str, client: PresentedDevice, *, in_browser: bool) -> EmailSignIn:
    """Count an attempt at the code of a request, check the code, and return the request. The code is not used up.

    An address without an account gets the same response after the same work as a wrong code
    (security B-1, B-2).

    Raises: EmailCodeMalformed, EmailCodeWrong, EmailSignInEnded, TooManyAttempts.
    """
    code, now = normalize_code(code), ports.clock.now()
    async with ports.storage.autocommit() as statements:
        attempt = await statements.email_sign_ins.count_attempt(
            digest(secret),
            in_browser,
            devices.known_by(client),
            MAX_EMAIL_CODE_ATTEMPTS,
            attempt_limits_model.attempt_limit(ports.policy, SecretKind.EMAIL_CODE),
            now,
        ) or refuse(EmailSignInEnded)
    attempt_limits_model.raise_if_locked(SecretKind.EMAIL_CODE, attempt.blocked_until, now)
    sign_in = attempt.sign_in
    is_right = hmac.compare_digest(code, attempt.code or "")
    if sign_in.user_id is None or not is_right:
        # Without an account this id matches none, and the statement takes as long.
        await record_failure(ports, caller, LoginFailure.EMAIL_CODE, EMAIL, sign_in.user_id or sign_in.id)
        raise EmailCodeWrong
    await attempt_limits.clear(ports, SecretKind.EMAIL_CODE, attempt.subject)  # the code was right, even if the sign-in fails
    return sign_in


@dataclass(frozen=True, slots=True)
class EmailProof:
    """A request whose code or link was verified. It is used up here.

    The email proves the mailbox. An account with an unverified address becomes verified, and keeps
    nothing that an earlier owner of the account left behind (security A-7).
    """

    sign_in: EmailSignIn

    async def verify(self, ports: Ports, caller: Caller, flow: Flow, client: PresentedDevice) -> Proved:
        """Return what uses the request up. Raises, in the transaction: EmailSignInEnded."""
        sign_in, now = self.sign_in, ports.clock.now()

        async def lock(tx: Transaction, _: Caller) -> tuple[Account, None]:
            account = await tx.accounts.lock(sign_in.user_id or sign_in.id) or refuse(EmailSignInEnded)
            # After a change of address, the owner of the old mailbox must not get in (security ).
            if not account.is_usable or account.email != sign_in.email or not await tx.email_sign_ins.redeem(sign_in.id, now):
                raise EmailSignInEnded
            if account.email_verified_at is None:
                account = await mailbox.prove_mailbox_by_sign_in(tx, account, now) or refuse(EmailSignInEnded)
            await tx.attempt_limits.clear_of_account(SecretKind.EMAIL_CODE, account.id, account.email)
            return account, None

        return Proved(proof=Proof(Method.EMAIL, now), lock=lock)
