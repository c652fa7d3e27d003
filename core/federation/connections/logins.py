"""The sign-ins at connections, stored for a later sign-out until their session ends, and the names of their problems in the log."""

import re
from datetime import datetime
from uuid import UUID

from core.authentication.flow.methods import record_failure
from core.authentication.flow.model import FLOW_TTL
from core.authentication.model.login import LoginFailure
from core.authentication.model.sign_in_log import ConnectionAttempt
from core.federation.connections.model import openid, saml_responses
from core.federation.connections.model.asserted import AssertedPerson
from core.federation.connections.model.connections import OrganizationConnection
from core.federation.connections.model.logins import ConnectionLogin
from core.kernel.causes import Caller
from core.kernel.errors import Refusal
from core.kernel.proofs import Method
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


async def record_refused_sign_out(ports: Ports, caller: Caller, connection: OrganizationConnection, problem: Refusal) -> None:
    """Record in the sign-in log that a message of the identity provider about a sign-out was refused."""
    attempt = ConnectionAttempt(connection.id, connection.org_id, fault_of(problem))
    await record_failure(ports, caller, LoginFailure.LOGOUT, Method.CONNECTION, None, connection=attempt)


async def find_user(tx: Transaction, connection: OrganizationConnection, subject: str) -> UUID | None:
    """Return the user of a subject at the identity provider, or None if no account has it."""
    known = await tx.connection_identities.subject(connection.org_id, connection.id, subject)
    return None if known is None else known.user_id


async def find_newest(
    tx: Transaction, connection: OrganizationConnection, user_id: UUID | None, provider_session: str | None
) -> ConnectionLogin | None:
    """Return the newest sign-in in this session at the identity provider, or without a session that of the user, or None."""
    if provider_session is not None:
        return await tx.connection_logins.newest_of_session(connection.org_id, connection.id, provider_session)
    return None if user_id is None else await tx.connection_logins.newest_of_user(connection.org_id, connection.id, user_id)


async def end_at_provider(
    tx: Transaction, connection: OrganizationConnection, user_id: UUID | None, provider_session: str | None, now: datetime
) -> int:
    """End the sign-ins that ended at the identity provider, and return the number of their users.

    The end of a session there acts like a sign-out on our pages: applications with offline access keep their sessions. `user_id`
    None: the sign-ins of all users in the session. `provider_session` None: all sign-ins of the user at this connection.
    """
    org_id = connection.org_id
    if provider_session is not None:
        counts = await tx.session_sign_ins.end_provider_session(org_id, connection.id, provider_session, user_id, now)
    else:
        assert user_id is not None, "a user or a session"
        counts = await tx.session_sign_ins.end_of_connection(org_id, connection.id, user_id, now)
    for each, count in sorted(counts.items()):
        tx.record(events.sessions_revoked(org_id, each, count))
    return len(counts)


def fault_of(problem: Refusal) -> str:
    """Return the fault of the answer, the error of the provider, or the name of our refusal."""
    match problem:
        case openid.OpenIdAnswerRefused() | openid.OpenIdProviderUnreachable() | saml_responses.SamlResponseRefused():
            return problem.fault
        case openid.OpenIdErrorReturned():
            return problem.error
        case saml_responses.SamlStatusReturned():
            return problem.detail or problem.status
    return re.sub("(?<!^)(?=[A-Z])", "_", type(problem).__name__).lower()
