"""Sign-in with an account at an identity provider (security A-4, A-7, O-5)."""

from dataclasses import dataclass
from datetime import datetime

from core.accounts import accounts, mailbox
from core.accounts import events as accounts_events
from core.accounts.model import accounts as accounts_model
from core.accounts.model.accounts import Account, AccountOrigin, EmailNotFree
from core.accounts.model.devices import PresentedDevice
from core.accounts.model.email_queue import EmailKind, new_email
from core.applications.model.services import ServiceNotFound
from core.authentication.flow.methods import Proved, SendBehind, record_failure
from core.authentication.flow.model import Flow, ProviderTrip
from core.authentication.model.identities import PendingIdentity
from core.authentication.model.login import LoginFailure
from core.federation.model.sign_in import ProviderEmailMissing, ProviderEmailTaken, ProviderStateUnknown
from core.kernel.callers import OrganizationStatus
from core.kernel.causes import Caller
from core.kernel.errors import OrganizationNotActive, Refusal, refuse
from core.kernel.proofs import first_proof
from core.kernel.providers import FederatedIdentity
from ports import Ports
from ports.storage import Transaction


@dataclass(frozen=True, slots=True)
class ProviderIdentity:
    """The answer of an identity provider that authenticated a user."""

    trip: ProviderTrip
    identity: FederatedIdentity

    async def verify(self, ports: Ports, caller: Caller, flow: Flow, client: PresentedDevice) -> Proved:
        """Return what finds or creates the account.

        Raises, in the transaction: ProviderEmailMissing, ProviderEmailTaken, ProviderStateUnknown,
        ServiceNotFound, OrganizationNotActive.
        """
        trip, identity = self.trip, self.identity

        async def lock(tx: Transaction, _: Caller, __: SendBehind) -> tuple[Account, PendingIdentity | None]:
            return await _find_account(ports, trip, identity, tx)

        async def refused(refusal: Refusal) -> None:
            if isinstance(refusal, (ProviderEmailMissing, ProviderEmailTaken)):
                await record_failure(ports, caller, LoginFailure.ADDRESS, trip.provider, None, trip.flow.application)

        proof = first_proof(trip.provider, ports.clock.now(), is_fresh=identity.is_fresh)
        return Proved(proof=proof, lock=lock, refused=refused)


async def _find_account(
    ports: Ports, trip: ProviderTrip, identity: FederatedIdentity, tx: Transaction
) -> tuple[Account, PendingIdentity | None]:
    """Return the locked account of this identity, and the identity to link, if any.

    The caller links the identity after all factors are verified. If the identity is already linked
    in this context (the service, or the platform itself), only its new tokens are stored. A closed
    account is returned as it is.

    A linked identity is found by provider, issuer and subject, in this or another context, and
    never by its email address (security O-5).
    """
    now, service_id, provider = ports.clock.now(), trip.service_id, trip.provider
    if service_id is not None:  # the organization may have been suspended while the browser was at the provider
        service = await tx.services.context_by_id(service_id) or refuse(ServiceNotFound)
        if service.status is not OrganizationStatus.ACTIVE:
            raise OrganizationNotActive
    # Lock order: the subject before all other locks. Of two parallel first sign-ins, the second one
    # finds the account of the first.
    await tx.identities.lock_subject(provider, identity.issuer, identity.subject)
    match = await tx.identities.match(provider, identity.issuer, identity.subject, service_id)
    if match is None:
        account = await _find_account_by_email(trip, identity, tx, now)
    else:
        account = await tx.accounts.lock(match.user_id) or refuse(ProviderStateUnknown)
        match = await tx.identities.match(provider, identity.issuer, identity.subject, service_id)
        if match is None or match.user_id != account.id:  # unlinked before the account lock was granted
            raise ProviderStateUnknown
    if not account.is_usable:
        return account, None
    pending_identity = None
    if match is not None and match.is_here:
        await tx.identities.update_tokens(match.id, identity.email, identity.tokens)
    else:
        pending_identity = trip.to_link(identity, known_elsewhere=match is not None)
    return account, pending_identity


async def _find_account_by_email(trip: ProviderTrip, identity: FederatedIdentity, tx: Transaction, now: datetime) -> Account:
    """Return the locked account for a new identity.

    It is a new account, or the account with the same email address, if the provider has verified
    that address.
    """
    email = identity.email or refuse(ProviderEmailMissing)
    origin = AccountOrigin.PLATFORM if trip.org_id is None else AccountOrigin.SIGN_UP
    if not identity.email_verified:
        account = accounts_model.new_account(email, None, now, origin=origin, org_id=trip.org_id)
        if not await tx.accounts.add_if_free(account):
            raise ProviderEmailTaken
        # As after a registration, the user must verify the address first. Until then it proves
        # nothing (security A-4).
        await tx.email_queue.add(new_email(EmailKind.VERIFY_EMAIL, email, now, org_id=trip.org_id))
        tx.record(accounts_events.signed_up(account.id, trip.org_id, trip.service_id))
        return account
    try:
        account, is_new = await accounts.find_or_add(tx, email, now, origin=origin, org_id=trip.org_id)
    except EmailNotFree:
        raise ProviderEmailTaken from None
    if account.is_usable and account.email_verified_at is not None:
        return account
    if is_new:
        tx.record(accounts_events.signed_up(account.id, trip.org_id, trip.service_id))
    elif account.is_usable and account.is_unproven:
        raise ProviderEmailTaken
    return await mailbox.prove_mailbox(tx, account, now) or account
