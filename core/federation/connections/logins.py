"""The sign-ins at connections: they are stored for a later sign-out, and end with the session at the identity provider."""

from datetime import datetime
from uuid import UUID

from core.authentication.flow.model import FLOW_TTL
from core.federation.connections.model.asserted import AssertedPerson
from core.federation.connections.model.connections import OrganizationConnection
from core.federation.connections.model.logins import ConnectionLogin
from core.tenancy import events
from ports import Ports
from ports.storage import Transaction


async def add(ports: Ports, tx: Transaction, login_id: UUID, person: AssertedPerson, user_id: UUID, now: datetime) -> None:
    """Store the sign-in of an asserted person to this account. The proof of the sign-in names `login_id`."""
    session = person.session
    if session is None:
        return
    login = ConnectionLogin(
        id=login_id,
        org_id=person.org_id,
        connection_id=person.connection_id,
        user_id=user_id,
        provider_session=session.id,
        logout=session.logout,
        created_at=now,
        # The session can start after the second factor, and lives for this time at most.
        ends_at=now + FLOW_TTL + ports.policy.session_absolute_ttl,
    )
    await tx.connection_logins.add(login)


async def end_at_provider(
    tx: Transaction, connection: OrganizationConnection, subject: str | None, provider_session: str | None, now: datetime
) -> int:
    """End the sign-ins that ended at the identity provider, and return the number of their users.

    The end of a session there acts like a sign-out on our pages: applications with offline access keep their sessions. A subject
    without a session ends all sign-ins of the user at this connection. The organization is locked.
    """
    org_id, user_id = connection.org_id, None
    if subject is not None:
        known = await tx.connection_identities.subject(org_id, connection.id, subject)
        if known is None or known.user_id is None:
            return 0
        user_id = known.user_id
    if provider_session is not None:
        counts = await tx.session_sign_ins.end_provider_session(org_id, connection.id, provider_session, user_id, now)
    else:
        assert user_id is not None, "a sign-out names a subject or a session"
        counts = await tx.session_sign_ins.end_of_connection(org_id, connection.id, user_id, now)
    for each, count in sorted(counts.items()):
        tx.record(events.sessions_revoked(org_id, each, count))
    return len(counts)
