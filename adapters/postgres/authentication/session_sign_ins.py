"""Storage for a session's sign-in, and for the browser that it belongs to."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final, LiteralString
from uuid import UUID

from adapters.postgres.authentication import sign_in_proofs
from adapters.postgres.authentication.session_contexts import BROWSER_SESSION
from adapters.postgres.authentication.sign_in_proofs import NAMES, STRENGTH
from adapters.postgres.engine.records import Record
from adapters.postgres.engine.statements import Repository
from core.kernel import callers
from core.kernel.proofs import SessionProofs, end_of

_PROOFS: Final = ", ".join(f"{name} = %({name})s" for name in NAMES)
REAUTHENTICATE: Final = f"""
    update sessions s set {_PROOFS}, mfa_missing = mfa_missing and coalesce(%(strength)s::smallint, 1) < 2,
                        ends_at = least(ends_at, %(end)s), expires_at = least(expires_at, %(end)s)
    where id = %(session_id)s and user_id = %(user_id)s"""
SIGN_IN: Final = Record(callers.StoredSignIn, "s", session_id="s.id", org_id="v.org_id", proofs=sign_in_proofs.proof_columns("s"))
# The last use per organization stays known, as a pass that has ended.
WEAKEN: Final = f"""
    with weakened as (
        select * from unnest(
            %(session_ids)s::uuid[], %(proofs)s::jsonb[], %(strength)s::smallint[], %(restricted_to)s::uuid[],
            %(authenticated_at)s::timestamptz[], %(fresh)s::boolean[]) as w (session_id, {", ".join(NAMES)})),
    passes as (update policy_passes p set valid_until = p.used_at from weakened w where p.session_id = w.session_id)
    update sessions s set {", ".join(f"{name} = w.{name}" for name in NAMES)},
        mfa_missing = coalesce(w.strength, 1) < 2
            and (s.mfa_missing or (%(asks_again)s and s.service_id is null and s.restricted_to is null))
    from weakened w where s.id = w.session_id and s.user_id = %(user_id)s"""

# The users `u` of a connection, or a single user
_OF_CONNECTION: Final = """
    u.id in (select i.user_id from connection_identities i
             where i.org_id = %(org_id)s and i.connection_id = %(connection_id)s
               and (%(user_id)s::uuid is null or i.user_id = %(user_id)s))"""
# The users `u` in a session at a connection's identity provider, or a single user
_OF_PROVIDER_SESSION: Final = """
    u.id in (select l.user_id from connection_logins l
             where l.org_id = %(org_id)s and l.connection_id = %(connection_id)s and l.provider_session = %(provider_session)s
               and (%(user_id)s::uuid is null or l.user_id = %(user_id)s))"""
_WITH_PROOF: Final = "s.proofs @> jsonb_build_array(jsonb_build_object('connection', %(connection_id)s::text))"
# Applications with offline access keep their sessions, as at a sign-out on our pages.
_WITH_LOGIN: Final = """
    not (s.service_id is not null and 'offline_access' = any(coalesce(s.scope, '{}')))
    and exists (
        select 1 from connection_logins l
        where l.org_id = %(org_id)s and l.connection_id = %(connection_id)s and l.provider_session = %(provider_session)s
          and l.user_id = u.id and s.proofs @> jsonb_build_array(jsonb_build_object('login', l.id::text)))"""


def _end(users: LiteralString, sessions: LiteralString) -> LiteralString:
    """Return the statement that ends a connection's sign-ins in these sessions `s` for these users `u`."""
    return f"""
        with found as materialized (
            select s.id, s.user_id, s.restricted_to is not null or s.service_id is not null as ends
            from users u join sessions s on s.user_id = u.id and s.ended_at is null
            where {users} and {sessions}),
        ended as (update sessions s set ended_at = %(now)s from found f where f.ends and s.id = f.id),
        kept as (
            update sessions s
            set proofs = (select jsonb_agg(p) from jsonb_array_elements(s.proofs) p
                          where p ->> 'connection' is distinct from %(connection_id)s::text)
            from found f where not f.ends and s.id = f.id
            returning s.id),
        passes as (delete from policy_passes y using kept k where y.session_id = k.id and y.org_id = %(org_id)s)
        select user_id, count(*) filter (where ends) from found group by user_id"""


class SessionSignIns(Repository):
    """Implements `ports.storage.authentication.sessions.SessionSignIns`."""

    async def is_of_browser(self, session_id: UUID, user_id: UUID, client_name: str | None, browser_hash: bytes) -> bool:
        sql = """
            select 1 from sessions s
            join sessions b on b.id = s.browser_session_id and b.user_id = s.user_id and b.browser_hash = %(browser_hash)s
            left join services v on v.id = s.service_id
            where s.id = %(session_id)s and s.user_id = %(user_id)s
              and coalesce(v.client_uri, v.client_id::text) is not distinct from %(client_name)s
              and (s.service_id is null) = (%(client_name)s::text is null)"""
        return await self._exists(sql, session_id=session_id, user_id=user_id, client_name=client_name, browser_hash=browser_hash)

    async def load_factors(self, session_id: UUID, user_id: UUID) -> callers.BrowserSession | None:
        sql = f"select {BROWSER_SESSION.columns} from sessions s where s.id = %(session_id)s and s.user_id = %(user_id)s"
        return await self._one(BROWSER_SESSION.read, sql, session_id=session_id, user_id=user_id)

    async def require_mfa_again(self, user_id: UUID, session_id: UUID, *, is_proved: bool) -> None:
        sql = f"""
            update sessions s set mfa_missing = true
            where s.user_id = %(user_id)s and s.ended_at is null and s.service_id is null and not s.mfa_missing and s.restricted_to is null
              and case when s.id = %(session_id)s then not %(is_proved)s and {STRENGTH} < 2 else {STRENGTH} < 3 end"""
        await self._run(sql, user_id=user_id, session_id=session_id, is_proved=is_proved)

    async def browser_of(self, session_id: UUID, user_id: UUID) -> UUID | None:
        sql = """
            select case when browser_hash is null then browser_session_id else id end
            from sessions where id = %(session_id)s and user_id = %(user_id)s"""
        return await self._one(lambda row: row[0], sql, session_id=session_id, user_id=user_id)

    async def reauthenticate(self, session_id: UUID, user_id: UUID, proofs: SessionProofs) -> None:
        await self._run(REAUTHENTICATE, session_id=session_id, user_id=user_id, end=end_of(proofs), **sign_in_proofs.columns_of(proofs))

    async def list_of_user(self, user_id: UUID) -> Sequence[callers.StoredSignIn]:
        sql = f"""
            select {SIGN_IN.columns} from sessions s left join services v on v.id = s.service_id
            where s.user_id = %(user_id)s and s.ended_at is null and s.impersonator_id is null"""
        return await self._all(SIGN_IN.read, sql, user_id=user_id)

    async def weaken(self, sign_ins: Sequence[callers.StoredSignIn], user_id: UUID, *, asks_again: bool) -> None:
        rows = [sign_in_proofs.columns_of(each.proofs, org_id=each.org_id) for each in sign_ins]
        columns = {name: [row[name] for row in rows] for name in NAMES}
        await self._run(WEAKEN, session_ids=[each.session_id for each in sign_ins], user_id=user_id, asks_again=asks_again, **columns)

    async def join(self, session_id: UUID, user_id: UUID, proofs: SessionProofs, expires_at: datetime, ends_at: datetime) -> None:
        sql = f"""
            update sessions s set {_PROOFS}, expires_at = %(expires_at)s, ends_at = %(ends_at)s
            where id = %(session_id)s and user_id = %(user_id)s"""
        await self._run(
            sql, session_id=session_id, user_id=user_id, expires_at=expires_at, ends_at=ends_at, **sign_in_proofs.columns_of(proofs)
        )

    async def end_of_connection(self, org_id: UUID, connection_id: UUID, user_id: UUID | None, now: datetime) -> dict[UUID, int]:
        values = {"org_id": org_id, "connection_id": connection_id, "user_id": user_id}
        return await self._end_sign_ins(_OF_CONNECTION, _WITH_PROOF, now, **values)

    async def end_provider_session(
        self, org_id: UUID, connection_id: UUID, provider_session: str, user_id: UUID | None, now: datetime
    ) -> dict[UUID, int]:
        values = {"org_id": org_id, "connection_id": connection_id, "provider_session": provider_session, "user_id": user_id}
        return await self._end_sign_ins(_OF_PROVIDER_SESSION, _WITH_LOGIN, now, **values)

    async def _end_sign_ins(self, users: LiteralString, sessions: LiteralString, now: datetime, **values: object) -> dict[UUID, int]:
        # Codes and approvals lock the account, too, so they start no session with the proof afterwards.
        await self._run(f"select 1 from users u where {users} order by u.id for no key update", **values)
        return dict(await self._rows(_end(users, sessions), **values, now=now))
