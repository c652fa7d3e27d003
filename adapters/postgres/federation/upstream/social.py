"""States of browsers at identity providers."""

from datetime import datetime
from typing import Final

from adapters.postgres.authentication.live_sessions import SESSION_NOT_ENDED
from adapters.postgres.engine.statements import Repository, Row
from core.federation.model.sign_in import ProviderState
from core.kernel.providers import Provider

COLUMNS: Final = (
    "state_hash, browser_hash, provider, org_id, service_id, user_id, session_id, browser_session_id, reauthenticates, scopes, after, "
    "created_at, expires_at"
)


def to_provider_state(row: Row) -> ProviderState:
    return ProviderState(
        state_hash=row[0],
        browser_hash=row[1],
        provider=Provider(row[2]),
        org_id=row[3],
        service_id=row[4],
        user_id=row[5],
        session_id=row[6],
        browser_session_id=row[7],
        reauthenticates=row[8],
        scopes=None if row[9] is None else tuple(row[9]),
        after=row[10],
        created_at=row[11],
        expires_at=row[12],
    )


class ProviderStates(Repository):
    """The states of browsers at identity providers, in PostgreSQL."""

    async def add(self, pending: ProviderState) -> bool:
        # Lock the service, or the session of the user who links an account, with `for key share`:
        # neither may be deleted before this row, which refers to it, is committed.
        # ACCOUNT_IS_USABLE and MAY_IMPERSONATE are missing, because `social.complete_for_session` checks all
        # conditions of a live session.
        return await self._exists(
            f"""
            insert into provider_states ({COLUMNS})
            select %(state_hash)s, %(browser_hash)s, %(provider)s, %(org_id)s, %(service_id)s, %(user_id)s, %(session_id)s,
                   %(browser_session_id)s, %(reauthenticates)s, %(scopes)s::text[], %(after)s, %(created_at)s, %(expires_at)s
            where (%(service_id)s::uuid is null
                   or exists (select 1 from services where id = %(service_id)s and org_id = %(org_id)s for key share))
              and (%(session_id)s::uuid is null
                   or exists (select 1 from sessions s
                              where s.id = %(session_id)s and s.user_id = %(user_id)s and {SESSION_NOT_ENDED} for key share))
            returning 1""",
            state_hash=pending.state_hash,
            browser_hash=pending.browser_hash,
            provider=pending.provider,
            org_id=pending.org_id,
            service_id=pending.service_id,
            user_id=pending.user_id,
            session_id=pending.session_id,
            browser_session_id=pending.browser_session_id,
            reauthenticates=pending.reauthenticates,
            scopes=None if pending.scopes is None else list(pending.scopes),
            after=pending.after,
            created_at=pending.created_at,
            expires_at=pending.expires_at,
            now=pending.created_at,
        )

    # The response of a provider names no organization, so this statement cannot either: the state
    # alone identifies the service.
    async def consume(self, state_hash: bytes, browser_hash: bytes, provider: Provider, now: datetime) -> ProviderState | None:
        sql = f"""
            delete from provider_states
            where state_hash = %(state_hash)s and browser_hash = %(browser_hash)s and provider = %(provider)s and expires_at > %(now)s
            returning {COLUMNS}"""
        return await self._one(to_provider_state, sql, state_hash=state_hash, browser_hash=browser_hash, provider=provider, now=now)
