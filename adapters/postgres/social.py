"""Browsers that were sent to identity providers and have not come back yet."""

from datetime import datetime
from typing import Final

from adapters.postgres.statements import Repository, Row
from core.providers import Provider
from core.social import Trip

COLUMNS: Final = "state_hash, browser_hash, provider, org_id, service_id, user_id, session_id, scopes, after, created_at, expires_at"


def to_trip(row: Row) -> Trip:
    return Trip(
        state_hash=row[0],
        browser_hash=row[1],
        provider=Provider(row[2]),
        org_id=row[3],
        service_id=row[4],
        user_id=row[5],
        session_id=row[6],
        scopes=None if row[7] is None else tuple(row[7]),
        after=row[8],
        created_at=row[9],
        expires_at=row[10],
    )


class ProviderStates(Repository):
    """ports.storage.ProviderStates and Returns."""

    async def add(self, trip: Trip) -> bool:
        # What it is for stays until the transaction ends, since the row refers to it: the service, or the session of whoever links.
        return await self._exists(
            f"""
            insert into provider_states ({COLUMNS})
            select %(state_hash)s, %(browser_hash)s, %(provider)s, %(org_id)s, %(service_id)s, %(user_id)s, %(session_id)s,
                   %(scopes)s::text[], %(after)s, %(created_at)s, %(expires_at)s
            where (%(service_id)s::uuid is null
                   or exists (select 1 from services where id = %(service_id)s and org_id = %(org_id)s for key share))
              and (%(session_id)s::uuid is null
                   or exists (select 1 from sessions
                              where id = %(session_id)s and user_id = %(user_id)s and ended_at is null for key share))
            returning 1""",
            state_hash=trip.state_hash,
            browser_hash=trip.browser_hash,
            provider=trip.provider,
            org_id=trip.org_id,
            service_id=trip.service_id,
            user_id=trip.user_id,
            session_id=trip.session_id,
            scopes=None if trip.scopes is None else list(trip.scopes),
            after=trip.after,
            created_at=trip.created_at,
            expires_at=trip.expires_at,
        )

    # What comes back from a provider says nothing of an organization: the state is all that tells for which one the browser went.
    async def take(self, state_hash: bytes, browser_hash: bytes, provider: Provider, now: datetime) -> Trip | None:
        return await self._one(
            to_trip,
            f"""
            delete from provider_states
            where state_hash = %(state_hash)s and browser_hash = %(browser_hash)s and provider = %(provider)s and expires_at > %(now)s
            returning {COLUMNS}""",
            state_hash=state_hash,
            browser_hash=browser_hash,
            provider=provider,
            now=now,
        )
