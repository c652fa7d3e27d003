"""States of browsers at identity providers."""

from datetime import datetime
from typing import Final

from adapters.postgres.authentication.live_sessions import SESSION_NOT_ENDED
from adapters.postgres.engine.records import Record
from adapters.postgres.engine.statements import Repository
from core.federation.model.sign_in import ProviderState
from core.kernel.connections import ConnectionSlug

STATE: Final = Record(ProviderState, "p", scopes=tuple)
# Lock the service, or the session of the user who links an account, with `for key share`: neither
# may be deleted before this row, which refers to it, is committed.
# ACCOUNT_IS_USABLE and MAY_IMPERSONATE are missing, because `social.complete_for_session` checks all
# conditions of a live session.
INSERT: Final = STATE.insert(
    "provider_states",
    source=f"""
    where (%(service_id)s::uuid is null
           or exists (select 1 from services where id = %(service_id)s and org_id = %(org_id)s for key share))
      and (%(session_id)s::uuid is null
           or exists (select 1 from sessions s
                      where s.id = %(session_id)s and s.user_id = %(user_id)s and {SESSION_NOT_ENDED} for key share))
    returning 1""",
)


class ProviderStates(Repository):
    """The states of browsers at identity providers, in PostgreSQL."""

    async def add(self, pending: ProviderState) -> bool:
        return await self._exists(INSERT, **STATE.values(pending), now=pending.created_at)

    # The response of a provider names no organization, so this statement cannot either: the state
    # alone identifies the service.
    async def consume(self, state_hash: bytes, browser_hash: bytes, provider: ConnectionSlug, now: datetime) -> ProviderState | None:
        sql = f"""
            delete from provider_states p
            where state_hash = %(state_hash)s and browser_hash = %(browser_hash)s and provider = %(provider)s and expires_at > %(now)s
            returning {STATE.columns}"""
        return await self._one(STATE.read, sql, state_hash=state_hash, browser_hash=browser_hash, provider=provider, now=now)
