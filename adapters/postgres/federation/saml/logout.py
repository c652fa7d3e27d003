"""SAML sessions and single logout."""

from datetime import datetime
from typing import Final
from uuid import UUID

from adapters.postgres.authentication.session_contexts import SESSION_NOT_ENDED
from adapters.postgres.engine import records, statements
from core.federation.saml.model import sign_on
from core.federation.saml.model.configuration import NameIdFormat
from core.federation.saml.model.messages import NameId

SESSION: Final = records.Record(
    sign_on.SamlSession,
    "p",
    name_id=records.Record(NameId, "p", value="p.name_id", format=records.Column(sql="p.name_id_format", read=NameIdFormat)).as_field(),
    former_names=tuple,
)
MAX_TIMES_SENT: Final = 2  # for a single request
LOGOUT: Final = records.Record(sign_on.SamlLogout, "l", initiator=records.Record(sign_on.LogoutInitiator, "l").as_field())
# No lock on the service: it may be deleted at any time during the logout, so every later step looks
# it up again.
INSERT_LOGOUT: Final = LOGOUT.insert(
    "saml_logouts",
    source="""
    where %(service_id)s::uuid is null
       or exists (select 1 from services v where v.org_id = %(org_id)s and v.id = %(service_id)s)
    returning 1""",
)
INSERT_REQUEST: Final = SESSION.insert(
    "saml_logout_requests",
    "request_id",
    "logout_id",
    "user_id",
    "sent_at",
    "answered_at",
    source="from services v where v.org_id = %(org_id)s and v.id = %(service_id)s returning 1",
)


def _to_request(row: statements.Row) -> tuple[str, sign_on.SamlSession]:
    return row[SESSION.width], SESSION.read(row)


class SamlLogouts(statements.Repository):
    """SAML sessions and logouts in PostgreSQL."""

    async def sessions(self, session_id: UUID, now: datetime) -> list[sign_on.SamlSession]:
        sql = f"""
            select {SESSION.columns} from saml_sessions p
            where p.session_id = %(session_id)s and exists (select 1 from sessions s where s.id = p.session_id and {SESSION_NOT_ENDED})
            order by p.created_at, p.service_id"""
        return await self._all(SESSION.read, sql, session_id=session_id, now=now)

    async def find_users(self, org_id: UUID, service_id: UUID, name_id: NameId, now: datetime) -> list[UUID]:
        return await self._all(
            lambda row: row[0],
            f"""
            select distinct s.user_id from saml_sessions p join sessions s on s.id = p.session_id
            where p.org_id = %(org_id)s and p.service_id = %(service_id)s and p.name_id = %(name_id)s
              and %(format)s in (p.name_id_format, %(any_format)s) and {SESSION_NOT_ENDED}""",
            org_id=org_id,
            service_id=service_id,
            name_id=name_id.value,
            format=name_id.format,
            any_format=NameIdFormat.UNSPECIFIED,
            now=now,
        )

    async def end_sessions_at(self, org_id: UUID, service_id: UUID, user_id: UUID, now: datetime) -> sign_on.EndedSessions:
        sql = f"""
            with ended as (
                update sessions s set ended_at = %(now)s from saml_sessions p
                where s.user_id = %(user_id)s and {SESSION_NOT_ENDED}
                  and p.session_id = s.id and p.org_id = %(org_id)s and p.service_id = %(service_id)s
                returning s.id)
            select count(*),
                   exists (select 1 from saml_sessions o join ended e on e.id = o.session_id where o.service_id <> %(service_id)s)
            from ended"""
        ended = await self._one(
            lambda row: sign_on.EndedSessions(row[0], row[1]), sql, org_id=org_id, service_id=service_id, user_id=user_id, now=now
        )
        assert ended is not None, "an aggregate has one row"
        return ended

    async def add(self, logout: sign_on.SamlLogout) -> bool:
        return await self._exists(INSERT_LOGOUT, **LOGOUT.values(logout))

    async def lock(self, browser_hash: bytes, now: datetime) -> sign_on.SamlLogout | None:
        sql = f"""
            select {LOGOUT.columns} from saml_logouts l
            where l.browser_hash = %(browser_hash)s and l.expires_at > %(now)s for update"""
        return await self._one(LOGOUT.read, sql, browser_hash=browser_hash, now=now)

    async def mark_partial(self, logout_id: UUID) -> None:
        await self._run("update saml_logouts set is_partial = true where id = %(logout_id)s", logout_id=logout_id)

    async def add_request(
        self, logout_id: UUID, request_id: str, user_id: UUID, session: sign_on.SamlSession, done_at: datetime | None
    ) -> bool:
        return await self._exists(
            INSERT_REQUEST,
            **SESSION.values(session),
            request_id=request_id,
            logout_id=logout_id,
            user_id=user_id,
            sent_at=done_at,
            answered_at=done_at,
        )

    async def requested_sessions(self, logout_id: UUID) -> list[sign_on.SamlSession]:
        sql = f"select {SESSION.columns} from saml_logout_requests p where p.logout_id = %(logout_id)s order by p.request_id"
        return await self._all(SESSION.read, sql, logout_id=logout_id)

    async def next_request(self, logout_id: UUID, now: datetime) -> tuple[str, sign_on.SamlSession] | None:
        # A request that was sent and has no response comes first. Anonymization empties the name,
        # and a request without the name cannot be sent.
        sql = f"""
            update saml_logout_requests p set sent_at = %(now)s, times_sent = times_sent + 1
            where request_id = (
                select request_id from saml_logout_requests
                where logout_id = %(logout_id)s and answered_at is null and name_id <> '' and times_sent < %(most)s
                order by times_sent desc, sent_at desc, request_id limit 1)
            returning {SESSION.columns}, p.request_id"""
        return await self._one(_to_request, sql, logout_id=logout_id, now=now, most=MAX_TIMES_SENT)

    async def last_request(self, logout_id: UUID) -> tuple[str, sign_on.SamlSession] | None:
        # Anonymization empties the name, and a request without the name cannot be sent again.
        sql = f"""
            select {SESSION.columns}, p.request_id from saml_logout_requests p
            where logout_id = %(logout_id)s and answered_at is null and name_id <> ''
              and sent_at = (select max(sent_at) from saml_logout_requests where logout_id = %(logout_id)s)
            order by request_id limit 1"""
        return await self._one(_to_request, sql, logout_id=logout_id)

    async def record_response(
        self, logout_id: UUID, org_id: UUID, service_id: UUID, request_id: str, now: datetime, *, is_success: bool
    ) -> bool | None:
        return await self._one(
            lambda row: bool(row[0]),
            """
            with asked as (
                select request_id, answered_at is null as is_first from saml_logout_requests
                where request_id = %(request_id)s and logout_id = %(logout_id)s and org_id = %(org_id)s and service_id = %(service_id)s
                  and times_sent > 0),
            answered as (
                update saml_logout_requests r set answered_at = %(now)s from asked a where r.request_id = a.request_id and a.is_first),
            marked as (
                update saml_logouts l set is_partial = true from asked a
                where l.id = %(logout_id)s and a.is_first and not %(is_success)s)
            select is_first from asked""",
            logout_id=logout_id,
            org_id=org_id,
            service_id=service_id,
            request_id=request_id,
            now=now,
            is_success=is_success,
        )

    async def delete(self, logout_id: UUID) -> bool:
        sql = """
                delete from saml_logouts l where l.id = %(logout_id)s
                returning l.is_partial or exists (
                    select 1 from saml_logout_requests r where r.logout_id = l.id and r.answered_at is null)"""
        return await self._one(lambda row: bool(row[0]), sql, logout_id=logout_id) or False
