"""Storage for sessions, and for the sessions in an organization and its services."""

from collections.abc import Collection
from datetime import datetime
from typing import ClassVar, Final, LiteralString
from uuid import UUID

from adapters.postgres.accounts.accounts import ACCOUNT_IS_USABLE
from adapters.postgres.applications.service_access import may_use
from adapters.postgres.applications.services import LOGGED_NAME, REQUIRED_STRENGTH
from adapters.postgres.authentication import openid, sign_in_proofs
from adapters.postgres.authentication.session_contexts import IMPERSONATOR_JOIN, MAY_IMPERSONATE, SESSION_NOT_ENDED
from adapters.postgres.authentication.sign_in_proofs import NAMES as PROOF_COLUMNS
from adapters.postgres.authentication.sign_in_proofs import STRENGTH
from adapters.postgres.engine import records
from adapters.postgres.engine.statements import Repository
from core.authentication.model import sessions
from core.kernel.callers import Person
from core.kernel.errors import SessionEnded
from core.kernel.values import PageResult
from core.tenancy.model.members import LiveSessions

# Session lists and counts leave out sessions that back personal access tokens, which have their own list.
NOT_OF_PERSONAL_TOKEN: Final = "not s.personal_token"  # noqa: S105  (a condition)
# SESSION_IS_LIVE with an exception: a session that this transaction itself has ended still counts
# as live, for example if users end all their sessions in an organization.
REQUIRE_LIVE: Final = f"""
    select raise_unless(exists (
        select 1
        from sessions s
        join users u on u.id = s.user_id
        {IMPERSONATOR_JOIN}
        where s.id = %(session_id)s and s.user_id = %(user_id)s and s.expires_at > %(now)s
          and (s.ended_at is null or s.xmin = pg_current_xact_id()::xid)
          and {ACCOUNT_IS_USABLE} and {MAY_IMPERSONATE}
        for share of s), 'session_is_live')"""
# Deny the approved device codes `d` if the sessions `a` approved them. Callers add further
# conditions.
DENY: Final = """
    update device_codes d set status = 'denied', session_id = null from sessions a where d.status = 'approved' and a.id = d.session_id"""
# Whether the session's sign-in is as strong as its service may require.
HAS_REQUIRED_FACTOR: Final = f"(v.required_acr is null or {STRENGTH} >= {REQUIRED_STRENGTH})"
SESSION: Final = records.Record(
    sessions.Session,
    "s",
    service=None,
    proofs=None,
    request_id=None,
    grant="s.grant_type",
    openid=records.Columns(openid.stored_grant("s"), openid.STORED_WIDTH, openid.to_grant, openid.grant_parameters),
)
REPLACED: Final = records.Record(sessions.ReplacedSession, "s", proofs=sign_in_proofs.proof_columns("s"))
BEGIN: Final = SESSION.insert("sessions", "service_id", "browser_hash", *PROOF_COLUMNS)
START_ROTATION: Final = """
    insert into refresh_tokens (token_hash, session_id, generation, created_at) select %(refresh_hash)s, id, 1, created_at from begun"""
# All sessions that a request could still use. ACCOUNT_IS_USABLE is missing because users list only
# their own sessions, and the caller's account is usable.
LIVE_SESSION: Final = records.Record(
    sessions.LiveSession,
    "s",
    organization="o.name",
    service=LOGGED_NAME,
    is_external="v.client_uri is not null",
    by_support="s.impersonator_id is not null",
    in_browser="s.browser_hash is not null",
    connection=sign_in_proofs.CONNECTION_NAME,
)
LIST_LIVE_SESSIONS: Final = f"""
    select count(*) over (), {LIVE_SESSION.columns}
    from sessions s
    join users u on u.id = s.user_id
    {IMPERSONATOR_JOIN}
    left join organizations o on o.id = s.org_id
    left join services v on v.id = s.service_id
    where s.user_id = %(user_id)s and {SESSION_NOT_ENDED} and {NOT_OF_PERSONAL_TOKEN} and {MAY_IMPERSONATE}
      and (s.service_id is null or v.id is not null)
    order by s.created_at desc, s.id desc limit %(limit)s"""


def session_parameters(session: sessions.Session) -> dict[str, object]:
    """Return the parameters for BEGIN, except `browser_hash`."""
    service = session.service
    of_service = {"service_id": service.id, "org_id": service.org_id} if service else {"service_id": None}
    return SESSION.values(session) | of_service | sign_in_proofs.columns_of(session.proofs, service.org_id if service else None)


class Sessions(Repository):
    """Implements `ports.storage.authentication.sessions.Sessions`."""

    constraints: ClassVar = {"session_is_live": SessionEnded}

    async def require_live(self, person: Person, now: datetime) -> None:
        """Lock the user's session until the transaction ends. `Storage.transaction` uses this.

        The lock is sent with the next statement, which raises SessionEnded if the session is not live.
        """
        await self._write(REQUIRE_LIVE, session_id=person.session_id, user_id=person.user_id, now=now)

    async def list_live(self, user_id: UUID, limit: int, now: datetime) -> PageResult[sessions.LiveSession]:
        return await self._page(LIVE_SESSION.read, LIST_LIVE_SESSIONS, user_id=user_id, limit=limit, now=now)

    async def begin(self, session: sessions.Session, refresh_hash: bytes) -> None:
        sql = f"""
            with begun as ({BEGIN} returning id, created_at)
            {START_ROTATION}"""
        await self._write(sql, **session_parameters(session), refresh_hash=refresh_hash, browser_hash=None)

    async def begin_in_browser(self, session: sessions.Session, browser_hash: bytes) -> None:
        await self._write(BEGIN, **session_parameters(session), browser_hash=browser_hash)

    async def ends_at(self, session_id: UUID, user_id: UUID, now: datetime) -> datetime | None:
        # ACCOUNT_IS_USABLE and MAY_IMPERSONATE are missing: the caller has locked the account, and
        # its user is a platform owner, who cannot be impersonated.
        sql = f"select s.ends_at from sessions s where s.id = %(session_id)s and s.user_id = %(user_id)s and {SESSION_NOT_ENDED}"
        return await self._one(lambda row: row[0], sql, session_id=session_id, user_id=user_id, now=now)

    async def end(self, session_id: UUID, now: datetime) -> None:
        sql = "update sessions set ended_at = %(now)s where id = %(session_id)s and ended_at is null"
        await self._run(sql, session_id=session_id, now=now)

    async def replace_in_browser(self, browser_hash: bytes, successor: UUID, now: datetime) -> sessions.ReplacedSession | None:
        sql = """
            select 1 from users u where u.id = (
                select s.user_id from sessions s where s.browser_hash = %(browser_hash)s and s.ended_at is null)
            for no key update"""
        await self._run(sql, browser_hash=browser_hash)
        # Triggers end the application sessions, and delete the forms, that still belong to the old session when the statement is done. A
        # form waits while its user signs in at the connection that a policy requires. The last use per organization stays known, as a pass
        # that has ended.
        sql = f"""
            with moved as (
                update sessions a set browser_session_id = n.id
                from sessions s join sessions n on n.id = %(successor)s and n.user_id = s.user_id
                where s.browser_hash = %(browser_hash)s and s.ended_at is null and a.browser_session_id = s.id and a.ended_at is null),
            moved_forms as (
                update kept_forms f set session_id = n.id
                from sessions s join sessions n on n.id = %(successor)s and n.user_id = s.user_id
                where s.browser_hash = %(browser_hash)s and s.ended_at is null and f.session_id = s.id),
            uses as (
                insert into policy_passes (session_id, org_id, version, role, valid_until, used_at)
                select n.id, y.org_id, y.version, y.role, y.used_at, y.used_at
                from sessions s join sessions n on n.id = %(successor)s and n.user_id = s.user_id
                join policy_passes y on y.session_id = s.id
                where s.browser_hash = %(browser_hash)s and s.ended_at is null
                on conflict do nothing)
            update sessions s set ended_at = %(now)s
            from (select) as one left join sessions n on n.id = %(successor)s
            where s.browser_hash = %(browser_hash)s and s.ended_at is null
            returning n.user_id is not distinct from s.user_id and s.expires_at > %(now)s and not s.mfa_missing, {REPLACED.columns}"""
        return await self._one(
            lambda row: REPLACED.read(row[1:]) if row[0] else None, sql, browser_hash=browser_hash, successor=successor, now=now
        )

    async def end_all(self, user_id: UUID, now: datetime) -> None:
        await self._run("update sessions set ended_at = %(now)s where user_id = %(user_id)s and ended_at is null", user_id=user_id, now=now)

    async def end_one(self, user_id: UUID, session_id: UUID, now: datetime) -> bool:
        sql = f"""
            update sessions s set ended_at = %(now)s
            where s.id = %(session_id)s and s.user_id = %(user_id)s and {SESSION_NOT_ENDED} and {NOT_OF_PERSONAL_TOKEN}"""
        ended = await self._run(sql, session_id=session_id, user_id=user_id, now=now)
        return ended > 0

    async def end_others(self, user_id: UUID, kept: UUID, now: datetime) -> None:
        sql = "update sessions set ended_at = %(now)s where user_id = %(user_id)s and id <> %(kept)s and ended_at is null"
        await self._run(sql, user_id=user_id, kept=kept, now=now)

    async def end_personal_tokens(self, user_id: UUID, now: datetime) -> None:
        sql = "update sessions set ended_at = %(now)s where user_id = %(user_id)s and personal_token and ended_at is null"
        await self._run(sql, user_id=user_id, now=now)

    async def end_on_device(self, user_id: UUID, device_id: UUID, now: datetime) -> None:
        sql = f"""
            update sessions s set ended_at = %(now)s
            where s.user_id = %(user_id)s and s.device_id = %(device_id)s and {SESSION_NOT_ENDED}"""
        await self._run(sql, user_id=user_id, device_id=device_id, now=now)

    async def remove(self, user_id: UUID, now: datetime, service_id: UUID | None = None) -> None:
        # Lock order: refresh tokens, then sessions, as in `rotate`. A statement that waited for a
        # rotation does not see the token that the rotation inserted, so the statement is repeated
        # until it deletes nothing.
        of_service = "" if service_id is None else "and s.service_id = %(service_id)s"
        values = {"user_id": user_id, "service_id": service_id}
        while await self._run(
            f"delete from refresh_tokens t using sessions s where s.user_id = %(user_id)s and t.session_id = s.id {of_service}", **values
        ):
            pass
        if service_id is not None:  # otherwise foreign keys delete the codes with the browser sessions that issued them
            sql = f"""
                with codes as (delete from authorization_codes where service_id = %(service_id)s and user_id = %(user_id)s)
                {DENY} and d.service_id = %(service_id)s and a.user_id = %(user_id)s"""
            await self._run(sql, **values)
        # End them first, so that applications get their notices.
        sql = f"update sessions s set ended_at = %(now)s where s.user_id = %(user_id)s and s.ended_at is null {of_service}"
        await self._run(sql, now=now, **values)
        await self._run(f"delete from sessions s where s.user_id = %(user_id)s {of_service}", **values)


# The sessions that selected the organization, and its services' sessions. Deleted services have no
# live sessions. ACCOUNT_IS_USABLE and MAY_IMPERSONATE are missing, because these sessions are only
# ended and counted.
LIVES_IN_ORGANIZATION: Final = f"""
    s.org_id = %(org_id)s and {SESSION_NOT_ENDED}
    and (s.service_id is null or exists (select 1 from services v where v.id = s.service_id))"""


def consented(row: LiteralString) -> LiteralString:
    """Return an SQL condition: the user agreed to this session, code or device code, and it is for this API resource, if any."""
    return f"""
        ({row}.api_resource_id = %(resource_id)s
         or %(resource_id)s::uuid is null and ({row}.scope is not null or {row}.api_resource_id is not null))"""


class OrganizationSessions(Repository):
    """Implements `ports.storage.authentication.sessions.OrganizationSessions`."""

    async def count_live(self, org_id: UUID, user_id: UUID, now: datetime) -> LiveSessions:
        sql = f"""
            select count(*), max(s.created_at) from sessions s
            where {LIVES_IN_ORGANIZATION} and s.user_id = %(user_id)s and {NOT_OF_PERSONAL_TOKEN}"""
        counts = await self._one(lambda row: LiveSessions(*row), sql, org_id=org_id, user_id=user_id, now=now)
        assert counts is not None, "count(*) always returns a row"
        return counts

    async def end(self, org_id: UUID, user_ids: Collection[UUID], now: datetime) -> int:
        # Keep the codes that were exchanged, so that a second use still ends the session (security
        # O-4).
        sql = f"""
            with codes as (
                delete from authorization_codes where org_id = %(org_id)s and user_id = any(%(user_ids)s) and session_id is null),
            approvals as ({DENY} and d.org_id = %(org_id)s and a.user_id = any(%(user_ids)s)),
            sign_ons as (
                update sign_in_flows set user_id = null, session_id = null, ticket_hash = null
                where org_id = %(org_id)s and user_id = any(%(user_ids)s) and ticket_hash is not null),
            ended as (
                update sessions s set ended_at = %(now)s where {LIVES_IN_ORGANIZATION} and s.user_id = any(%(user_ids)s)
                returning s.personal_token)
            select count(*) from ended s where {NOT_OF_PERSONAL_TOKEN}"""
        return await self._count(sql, org_id=org_id, user_ids=list(user_ids), now=now)

    async def end_consented(self, org_id: UUID, service_id: UUID, user_id: UUID, now: datetime, resource_id: UUID | None = None) -> None:
        # Keep the codes that were exchanged, as in `end`.
        sql = f"""
            with codes as (
                delete from authorization_codes c
                where c.org_id = %(org_id)s and c.service_id = %(service_id)s and c.user_id = %(user_id)s
                  and {consented("c")} and c.session_id is null),
            approvals as (
                {DENY} and d.org_id = %(org_id)s and d.service_id = %(service_id)s
                and {consented("d")} and a.user_id = %(user_id)s)
            update sessions s set ended_at = %(now)s
            where s.org_id = %(org_id)s and s.service_id = %(service_id)s and s.user_id = %(user_id)s
              and {consented("s")} and s.ended_at is null"""
        await self._run(sql, org_id=org_id, service_id=service_id, user_id=user_id, resource_id=resource_id, now=now)

    async def end_without_access(
        self, org_id: UUID, service_ids: Collection[UUID], user_ids: Collection[UUID] | None, now: datetime
    ) -> None:
        # Sessions have no index by service, so look them up by user.
        users = "(select user_id from service_users where service_id = v.id)" if user_ids is None else "unnest(%(user_ids)s::uuid[])"
        sql = f"""
            update sessions s set ended_at = %(now)s from services v, lateral {users} r (user_id)
            where v.org_id = %(org_id)s and v.id = any(%(service_ids)s) and s.user_id = r.user_id and s.org_id = v.org_id
              and s.service_id = v.id and s.ended_at is null
              and not ({may_use("v", "r.user_id")} and {HAS_REQUIRED_FACTOR})"""
        users_of = None if user_ids is None else list(user_ids)
        await self._run(sql, org_id=org_id, service_ids=list(service_ids), user_ids=users_of, now=now)
