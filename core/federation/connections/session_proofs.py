"""A sign-in at a connection again, for the session of a browser that began there (security A-12).

It is for users who have no way of the account's own, and makes the sign-in of the session newer. The session stays the same.
"""

from datetime import datetime

from core.accounts import session_proofs
from core.accounts.own_account import lock_own_account
from core.authentication import events
from core.authentication.flow.model import ConnectionTrip
from core.authentication.model.sessions import OtherIdentity
from core.federation.connections import logins
from core.federation.connections.model.asserted import AssertedPerson
from core.federation.connections.model.connections import OrganizationConnection
from core.federation.connections.model.people import ConnectionNotActive, proof_of
from core.federation.model.sign_in import LinkOfAnotherBrowser, SignedInAsAnotherUser
from core.kernel.access import BlockedByDirectory
from core.kernel.callers import Person, Visitor
from core.kernel.proofs import Method, in_session
from core.kernel.sign_in_policy.decision import Decision
from core.kernel.values import new_id
from ports import Ports


async def find_connection(ports: Ports, visitor: Visitor, decision: Decision | None) -> OrganizationConnection | None:
    """Return the connection at which the visitor's session began, if a sign-in there again is enough, or None.

    A session with a way of the account's own uses that one. `decision` is that of a sign-in policy that asks, if any.
    """
    if visitor.bounded_to is None or not (decision is None or _is_enough(decision)):
        return None
    connection_id = next((proof.connection for proof in in_session(visitor.browser.proofs) if proof.connection is not None), None)
    if connection_id is None:
        return None
    async with ports.storage.reading() as read:
        connection = await read.connections.of_active_org(connection_id)
    return connection if connection is not None and connection.is_active else None


def _is_enough(decision: Decision) -> bool:
    """Return whether a sign-in at the connection can meet the decision. A connection that the policy names has a way of its own."""
    return decision.connection is None and (decision.methods is None or Method.CONNECTION in decision.methods)


async def complete(ports: Ports, visitor: Person | None, trip: ConnectionTrip, person: AssertedPerson, now: datetime) -> None:
    """Store the sign-in of this person in the session that asked for it, in the browser of the session.

    Raises: SignedInAsAnotherUser, LinkOfAnotherBrowser, ConnectionNotActive, BlockedByDirectory, SessionEnded; OtherIdentity if
    another person signed in.
    """
    if visitor is not None and visitor.user_id != trip.user_id:
        raise SignedInAsAnotherUser
    if visitor is None or visitor.session_id != trip.flow.session_id:
        raise LinkOfAnotherBrowser
    async with ports.storage.transaction(by=visitor) as tx:
        await tx.connection_identities.lock_subject(person.connection_id, person.subject)
        account = await lock_own_account(tx, visitor, now)
        known = await tx.connection_identities.subject(person.org_id, person.connection_id, person.subject)
        if known is None or not known.is_active:
            raise ConnectionNotActive
        if known.user_id != account.id:
            raise OtherIdentity
        if known.is_blocked:
            raise BlockedByDirectory
        proof = proof_of(person, now, is_fresh=True, login=new_id())
        assert proof.login is not None, "it was just made"
        await logins.add(ports, tx, proof.login, person, account.id, now)
        await session_proofs.renew(ports, tx, visitor.session_id, account, (proof,), now)
        tx.record(events.reauthenticated(account.id, Method.CONNECTION))
