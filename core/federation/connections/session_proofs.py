"""A sign-in at a connection again, for the session of a browser that began there (security A-12).

The session stays the same, and its sign-in becomes newer. If the identity provider did not ask the user, and the account has a password,
this shows only that the identity provider vouches for the user: an own first factor must be as new.
"""

from datetime import datetime

from core.accounts import session_proofs
from core.accounts.own_account import lock_own_account
from core.authentication import events
from core.authentication.flow.model import ProviderRequest
from core.authentication.model.sessions import OtherIdentity
from core.federation.connections import logins
from core.federation.connections.model import people
from core.federation.connections.model.asserted import AssertedPerson
from core.federation.connections.model.connections import OrganizationConnection
from core.federation.connections.model.openid import is_new_sign_in
from core.federation.model import sign_in
from core.kernel import callers, proofs
from core.kernel.access import BlockedByDirectory
from core.kernel.sign_in_policy.decision import Decision
from core.kernel.values import new_id
from ports import Ports


async def find_connection(ports: Ports, visitor: callers.Visitor, decision: Decision | None) -> OrganizationConnection | None:
    """Return the connection at which another sign-in makes the visitor's session newer, or None.

    It is that of the sign-in policy that asks with this `decision`, if any, or the one at which the session began. A session with a
    way of the account's own uses that one. Users of break glass can sign in again at a connection through which they came.
    """
    if decision is not None and decision.connection is not None:
        is_too_old = decision.max_age is not None
        connection_id = decision.connection.id if is_too_old or decision.leads_to is not None else None
    else:
        used = () if visitor.restricted_to is None else proofs.in_session(visitor.browser.proofs)
        connection_id = next((proof.connection for proof in used if proof.connection is not None), None)
    if connection_id is None:
        return None
    async with ports.storage.reading() as read:
        connection = await read.connections.of_active_org(connection_id)
    if connection is None or not connection.is_active:
        return None
    if decision is not None and decision.breaks_glass:
        came = (proof.connection for proof in proofs.seen_in(visitor.browser.proofs, connection.org_id, ports.clock.now()))
        return connection if connection.id in came else None
    return connection


async def complete(
    ports: Ports, visitor: callers.Person | None, provider_request: ProviderRequest, person: AssertedPerson, now: datetime
) -> None:
    """Store the sign-in of this person in the session that asked for it, in the browser of the session.

    Raises: SignedInAsAnotherUser, LinkOfAnotherBrowser, ConnectionNotActive, BlockedByDirectory, SessionEnded; OtherIdentity if
    another person signed in.
    """
    if visitor is not None and visitor.user_id != provider_request.user_id:
        raise sign_in.SignedInAsAnotherUser
    if visitor is None or visitor.session_id != provider_request.flow.session_id:
        raise sign_in.LinkOfAnotherBrowser
    async with ports.storage.transaction(by=visitor) as tx:
        await tx.connection_identities.lock_subject(person.connection_id, person.subject)
        account = await lock_own_account(tx, visitor, now)
        known = await tx.connection_identities.subject(person.org_id, person.connection_id, person.subject)
        if known is None or not known.is_active:
            raise people.ConnectionNotActive
        if known.user_id != account.id:
            raise OtherIdentity
        if known.is_blocked:
            raise BlockedByDirectory
        proof = people.proof_of(
            person, now, is_fresh=is_new_sign_in(person.authenticated_at, provider_request.begun_at, now, person.clock_skew), login=new_id()
        )
        assert proof.login is not None, "it was just made"
        await logins.add(ports, tx, proof.login, person, account.id, now)
        await session_proofs.renew(ports, tx, visitor.session_id, account, (proof,), now)
        tx.record(events.reauthenticated(account.id, proofs.Method.CONNECTION))
