"""Identities at platform providers: signing in to an account, linking an account, and confirming a session.

Source: security A-4, A-7, O-5, O-6.
"""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from core.accounts import accounts, mailbox, security_notices
from core.accounts import events as accounts_events
from core.accounts.factors import own_proofs
from core.accounts.model import accounts as accounts_model
from core.accounts.model import email_queue
from core.accounts.model.accounts import Account, AccountOrigin, EmailNotFree
from core.accounts.model.devices import PresentedDevice
from core.accounts.own_account import lock_own_account
from core.applications.model.services import ServiceNotFound
from core.authentication import reauthentication
from core.authentication.flow import methods
from core.authentication.flow.model import Flow, FlowTarget, ProviderRequest
from core.authentication.model import identities
from core.authentication.model.login import LoginFailure
from core.authentication.model.sessions import OtherIdentity
from core.federation.model import sign_in
from core.kernel import callers, errors, sign_in_age
from core.kernel.causes import Caller
from core.kernel.connections import FederatedIdentity
from core.kernel.proofs import first_proof
from ports import Ports
from ports.storage import Transaction


@dataclass(frozen=True, slots=True)
class ProviderIdentity:
    """The answer of an identity provider that authenticated a user."""

    provider_request: ProviderRequest
    identity: FederatedIdentity

    async def verify(self, ports: Ports, caller: Caller, flow: Flow, client: PresentedDevice) -> methods.Proved:
        """Return what finds or creates the account.

        Raises, in the transaction: ProviderEmailMissing, ProviderEmailTaken, ProviderStateUnknown,
        ServiceNotFound, OrganizationNotActive.
        """
        provider_request, identity = self.provider_request, self.identity

        async def lock(tx: Transaction, _: Caller, __: methods.SendBehind) -> tuple[Account, identities.PendingIdentity | None]:
            return await _find_account(ports, provider_request, identity, tx)

        async def refused(refusal: errors.Refusal) -> None:
            if isinstance(refusal, (sign_in.ProviderEmailMissing, sign_in.ProviderEmailTaken)):
                await methods.record_failure(
                    ports, caller, LoginFailure.ADDRESS, identity.provider, None, provider_request.flow.application
                )

        proof = first_proof(identity.provider, ports.clock.now(), is_fresh=identity.is_fresh)
        return methods.Proved(proof=proof, lock=lock, refused=refused)


async def _find_account(
    ports: Ports, provider_request: ProviderRequest, identity: FederatedIdentity, tx: Transaction
) -> tuple[Account, identities.PendingIdentity | None]:
    """Return the locked account of this identity, and the identity to link, if any.

    The caller links the identity after all factors are verified. If the identity is already linked
    in this context (the service, or the platform itself), only its new tokens are stored. A closed
    account is returned as it is.

    A linked identity is found by provider, issuer and subject, in this or another context, and
    never by its email address (security O-5).
    """
    now, service_id, provider = ports.clock.now(), provider_request.service_id, identity.provider
    if service_id is not None:  # the organization may have been suspended while the browser was at the provider
        service = await tx.services.context_by_id(service_id) or errors.refuse(ServiceNotFound)
        if service.status is not callers.OrganizationStatus.ACTIVE:
            raise errors.OrganizationNotActive
    # Lock order: the subject before all other locks. Of two parallel first sign-ins, the second one
    # finds the account of the first.
    await tx.identities.lock_subject(provider, identity.issuer, identity.subject)
    match = await tx.identities.match(provider, identity.issuer, identity.subject, service_id)
    if match is None:
        account = await _find_account_by_email(provider_request, identity, tx, now)
    else:
        account = await tx.accounts.lock(match.user_id) or errors.refuse(sign_in.ProviderStateUnknown)
        match = await tx.identities.match(provider, identity.issuer, identity.subject, service_id)
        if match is None or match.user_id != account.id:  # unlinked before the account lock was granted
            raise sign_in.ProviderStateUnknown
    if not account.is_usable:
        return account, None
    pending_identity = None
    if match is not None and match.is_here:
        await tx.identities.update_tokens(match.id, identity.email, identity.tokens)
    else:
        pending_identity = provider_request.to_link(identity, known_elsewhere=match is not None)
    return account, pending_identity


async def _find_account_by_email(provider_request: ProviderRequest, identity: FederatedIdentity, tx: Transaction, now: datetime) -> Account:
    """Return the locked account for a new identity.

    It is a new account, or the account with the same email address, if the provider has verified
    that address.
    """
    email = identity.email or errors.refuse(sign_in.ProviderEmailMissing)
    origin = AccountOrigin.PLATFORM if provider_request.org_id is None else AccountOrigin.SIGN_UP
    if not identity.email_verified:
        account = accounts_model.new_account(email, None, now, origin=origin, org_id=provider_request.org_id)
        if not await tx.accounts.add_if_free(account):
            raise sign_in.ProviderEmailTaken
        # As after a registration, the user must verify the address first. Until then it proves
        # nothing (security A-4).
        await tx.email_queue.add(email_queue.new_email(email_queue.EmailKind.VERIFY_EMAIL, email, now, org_id=provider_request.org_id))
        tx.record(accounts_events.signed_up(account.id, provider_request.org_id, provider_request.service_id))
        return account
    try:
        account, is_new = await accounts.find_or_add(tx, email, now, origin=origin, org_id=provider_request.org_id)
    except EmailNotFree:
        raise sign_in.ProviderEmailTaken from None
    if account.is_usable and account.email_verified_at is not None:
        return account
    if is_new:
        tx.record(accounts_events.signed_up(account.id, provider_request.org_id, provider_request.service_id))
    elif account.is_usable and account.is_unproven:
        raise sign_in.ProviderEmailTaken
    return await mailbox.prove_mailbox(tx, account, now) or account


# For a session


async def complete_for_session(
    ports: Ports, caller: Caller, provider_request: ProviderRequest, identity: FederatedIdentity, visitor: callers.Visitor | None
) -> None:
    """Link the identity to the account of the user who started, or store that they signed in again.

    The session in which they started must be alive. `visitor` is the user who is signed in in this
    browser. It must still be the session in which the browser went to the provider (security O-6).

    Raises: SignedInAsAnotherUser, LinkOfAnotherBrowser, AccountGone, SessionEnded; to link,
    SignInNotRecent, PasskeyNeeded, IdentityLinkedToAnother, AlreadyLinked; otherwise OtherIdentity.
    """
    session_id, provider = provider_request.flow.session_id or errors.refuse(errors.SessionEnded), identity.provider
    if visitor is not None and visitor.user_id != provider_request.user_id:
        raise sign_in.SignedInAsAnotherUser
    if visitor is None or visitor.session_id != provider_request.flow.first_session_id:
        raise sign_in.LinkOfAnotherBrowser
    person = callers.Person(user_id=visitor.user_id, email=visitor.email, session_id=session_id, address=caller.address, agent=caller.agent)
    now = ports.clock.now()
    async with ports.storage.transaction(by=person) as tx:
        await tx.identities.lock_subject(provider, identity.issuer, identity.subject)
        account = await lock_own_account(tx, person, now)
        match = await tx.identities.match(provider, identity.issuer, identity.subject, None)
        if provider_request.flow.target is FlowTarget.REAUTHENTICATION:
            if match is None or match.user_id != account.id:
                raise OtherIdentity
            proof = first_proof(provider, now, is_fresh=identity.is_fresh)
            await reauthentication.complete_at_provider(ports, tx, account, person.session_id, provider, proof)
            return
        await _check_sign_ins(ports, tx, provider_request, session_id, visitor, now)
        await own_proofs.require_strongest_proof(ports, tx, person, account, provider_request.begun_at)
        if match is not None and match.user_id != account.id:
            raise sign_in.IdentityLinkedToAnother
        if not await tx.identities.add(provider_request.to_link(identity, known_elsewhere=match is not None).of(account.id, now)):
            raise identities.AlreadyLinked
        await security_notices.notify(
            tx, account, email_queue.EmailKind.IDENTITY_LINKED, now, session_id=person.session_id, detail=provider
        )
        tx.record(accounts_events.identity_linked(account.id, provider))


async def _check_sign_ins(
    ports: Ports, tx: Transaction, provider_request: ProviderRequest, session_id: UUID, visitor: callers.Visitor, now: datetime
) -> None:
    """Repeat the checks of `begin_with_ticket` under the account's lock: the user may have turned on a second factor since."""
    sessions = {session_id}
    if await tx.session_sign_ins.browser_of(session_id, visitor.user_id) is None:
        sessions.add(visitor.session_id)
    for used in sessions:
        session = await tx.session_contexts.load(used, visitor.user_id, None, now) or errors.refuse(errors.SessionEnded)
        if (
            refusal := sign_in_age.find_age_refusal(session.sign_in, sign_in_age.SignInAge.FRESH, ports.policy, provider_request.begun_at)
        ) is not None:
            raise refusal
