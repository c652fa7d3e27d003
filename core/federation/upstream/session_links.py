"""The return from an identity provider to a signed-in session, to link an account or to confirm that it is the user (security O-6)."""

from datetime import datetime
from uuid import UUID

from core.accounts import events as accounts_events
from core.accounts.factors import own_proofs
from core.accounts.model.email_queue import EmailKind
from core.accounts.notices import security_notices
from core.accounts.own_account import lock_own_account
from core.authentication.flow.model import FlowTarget, ProviderTrip
from core.authentication.model.identities import AlreadyLinked
from core.authentication.model.sessions import OtherIdentity
from core.authentication.reauthentication import reauthentication
from core.federation.model.sign_in import IdentityLinkedToAnother, LinkOfAnotherBrowser, SignedInAsAnotherUser
from core.kernel.callers import Person, Visitor
from core.kernel.causes import Caller
from core.kernel.errors import SessionEnded, refuse
from core.kernel.proofs import first_proof
from core.kernel.providers import FederatedIdentity
from core.kernel.sign_in_age import SignInAge, find_age_refusal
from ports import Ports
from ports.storage import Transaction


async def complete_for_session(
    ports: Ports, caller: Caller, trip: ProviderTrip, identity: FederatedIdentity, visitor: Visitor | None
) -> None:
    """Link the identity to the account of the user who started, or store that they signed in again.

    The session in which they started must be alive. `visitor` is the user who is signed in in this
    browser. It must still be the session in which the browser went to the provider (security O-6).

    Raises: SignedInAsAnotherUser, LinkOfAnotherBrowser, AccountGone, SessionEnded; to link,
    SignInNotRecent, PasskeyNeeded, IdentityLinkedToAnother, AlreadyLinked; otherwise OtherIdentity.
    """
    session_id, provider = trip.flow.session_id or refuse(SessionEnded), trip.provider
    if visitor is not None and visitor.user_id != trip.user_id:
        raise SignedInAsAnotherUser
    if visitor is None or visitor.session_id != trip.flow.first_session_id:
        raise LinkOfAnotherBrowser
    person = Person(user_id=visitor.user_id, email=visitor.email, session_id=session_id, address=caller.address, agent=caller.agent)
    now = ports.clock.now()
    async with ports.storage.transaction(by=person) as tx:
        await tx.identities.lock_subject(provider, identity.issuer, identity.subject)
        account = await lock_own_account(tx, person, now)
        match = await tx.identities.match(provider, identity.issuer, identity.subject, None)
        if trip.flow.target is FlowTarget.REAUTHENTICATION:
            if match is None or match.user_id != account.id:
                raise OtherIdentity
            proof = first_proof(provider, now, is_fresh=identity.is_fresh)
            await reauthentication.complete_at_provider(ports, tx, account, person.session_id, provider, proof)
            return
        await _check_sign_ins(ports, tx, trip, session_id, visitor, now)
        await own_proofs.require_strongest_proof(ports, tx, person, account, trip.begun_at)
        if match is not None and match.user_id != account.id:
            raise IdentityLinkedToAnother
        if not await tx.identities.add(trip.to_link(identity, known_elsewhere=match is not None).of(account.id, now)):
            raise AlreadyLinked
        await security_notices.notify(tx, account, EmailKind.IDENTITY_LINKED, now, session_id=person.session_id, detail=provider)
        tx.record(accounts_events.identity_linked(account.id, provider))


async def _check_sign_ins(ports: Ports, tx: Transaction, trip: ProviderTrip, session_id: UUID, visitor: Visitor, now: datetime) -> None:
    """Repeat the checks of `begin_with_ticket` under the account's lock: the user may have turned on a second factor since."""
    sessions = {session_id}
    if await tx.session_sign_ins.browser_of(session_id, visitor.user_id) is None:
        sessions.add(visitor.session_id)
    for used in sessions:
        session = await tx.session_contexts.load(used, visitor.user_id, None, now) or refuse(SessionEnded)
        if (refusal := find_age_refusal(session.sign_in, SignInAge.FRESH, ports.policy, trip.begun_at)) is not None:
            raise refusal
