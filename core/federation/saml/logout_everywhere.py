"""The end of a user's sessions at a service in all browsers, by a signed LogoutRequest (security X-9).

The other services of these browsers cannot be notified, because a logout needs the browser.
"""

from collections.abc import Collection
from datetime import datetime
from uuid import UUID

from core.federation.saml.model.sign_on import EndedSessions, InitiatingRequest
from core.kernel.callers import ServiceContext
from core.tenancy import events
from ports.storage import Transaction


async def find_users(tx: Transaction, service: ServiceContext, initiating: InitiatingRequest, now: datetime) -> Collection[UUID]:
    """Return the users whose sessions the request ends in all browsers."""
    if not initiating.is_everywhere or initiating.name_id is None:
        return ()
    return await tx.saml_logouts.find_users(service.org_id, service.id, initiating.name_id, now)


async def end_sessions(tx: Transaction, service: ServiceContext, users: Collection[UUID], now: datetime) -> EndedSessions:
    """End all browser sessions that have signed these users in to the service. The accounts are locked."""
    count, have_other_services = 0, False
    for user_id in users:
        ended = await tx.saml_logouts.end_sessions_at(service.org_id, service.id, user_id, now)
        if ended.count:
            tx.record(events.sessions_revoked(service.org_id, user_id, ended.count))
        count, have_other_services = count + ended.count, have_other_services or ended.have_other_services
    return EndedSessions(count, have_other_services)
