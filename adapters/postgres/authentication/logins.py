"""Storage for login records, failed logins with their limits, and the services' daily login totals."""

from functools import cache
from typing import Final, LiteralString
from uuid import UUID

from adapters.postgres.authentication.sessions import BEGIN, START_ROTATION, session_parameters
from adapters.postgres.engine import statements
from adapters.postgres.engine.statements import ASYNC_COMMIT
from adapters.postgres.kernel import rate_limits
from adapters.postgres.kernel.shared_sql import DELIVER, WRITE
from core.accounts.model.devices import Device
from core.applications.model.client_settings import known_name
from core.authentication.model import sign_in_log
from core.authentication.model.login import LoginFailure
from core.authentication.model.sessions import Session
from core.kernel import proofs
from core.kernel.event_catalog import SIGN_IN_FAILED
from core.kernel.values import new_id
from ports.signals import Signal

# A total is split over this many rows, so that concurrent logins to a service rarely wait for a
# commit.
SHARDS: Final = 8

COLUMNS: Final = """
    id, user_id, session_id, org_id, service_id, external_client, provider, success, address, agent, risk_score, risk_factors, city,
    country, created_at, seen_by, request_id, connection_id, received"""
RISK: Final = "%(risk_score)s, %(risk_factors)s::text[], %(city)s, %(country)s"
# Count the inserted row `login` in the total. The day is in UTC, whatever the connection's time
# zone is.
COUNT_LOGIN: Final = f"""
    insert into login_totals as t (org_id, service_id, day, provider, shard, total)
    select org_id, service_id, (created_at at time zone 'UTC')::date, provider, floor(random() * {SHARDS}), 1
    from login where service_id is not null
    on conflict (org_id, service_id, day, provider, shard) do update set total = t.total + 1"""


@cache
def begin_session_sql(*, in_browser: bool, at_service: bool) -> LiteralString:
    """Return the statement that adds a session and its login record.

    Only a session outside browsers has a refresh token, and only a login at a service counts in totals. A session that is good in a single
    organization is only in that organization's log.
    """
    tokens: LiteralString = "" if in_browser else f"tokens as ({START_ROTATION}),"
    return f"""
        with begun as ({BEGIN} returning id, user_id, org_id, service_id, address, agent, created_at), {tokens}
        login as (
            insert into login_events ({COLUMNS})
            select %(login_id)s, user_id, id, case when service_id is null then %(restricted_to)s::uuid else org_id end, service_id,
                   %(external_client)s, %(provider)s, true, address, agent, {RISK}, created_at, %(seen_by)s, %(request_id)s,
                   %(connection_id)s, %(received)s::text[]
            from begun
            returning org_id, service_id, provider, created_at)
        {COUNT_LOGIN if at_service else "select from login"}"""


def _risk_values(device: Device | None) -> dict[str, object]:
    """Return the parameters for RISK."""
    location = device.location if device else None
    return {
        "risk_score": device.risk.score if device else 0,
        "risk_factors": list(device.risk.factors) if device else [],
        "city": location.city if location else None,
        "country": location.country if location else None,
    }


def _external_client(session: Session) -> str | None:
    """Return an external client's name in logs. The client may be removed before its sign-ins."""
    client_uri = session.service.client_uri if session.service else None
    return None if client_uri is None else known_name(client_uri)


def _login_values(session: Session, device: Device | None, *, for_application: bool) -> dict[str, object]:
    """Return the parameters for `begin_session_sql`, without the secrets."""
    seen_by = "platform" if for_application and session.service is None else "all"
    return {
        **session_parameters(session),
        "login_id": new_id(),
        "provider": proofs.first_method_of(proofs.in_session(session.proofs, session.service.org_id if session.service else None)),
        "seen_by": seen_by,
        "external_client": _external_client(session),
        "request_id": session.request_id,
        **_connection_values(session),
        **_risk_values(device),
    }


def _connection_values(session: Session) -> dict[str, object]:
    """Return the connection through which the user signed in, and the names of the received claims, or None without a connection."""
    proof = proofs.used_connection(session.proofs, session.service.org_id if session.service else None)
    return {"connection_id": proof and proof.connection, "received": proof and (sign_in_log.logged_names(proof.received) or None)}


class Logins(statements.Repository):
    """Implements `ports.storage.authentication.sign_ins.Logins`."""

    async def begin_session(self, session: Session, refresh_hash: bytes, device: Device | None, *, for_application: bool = False) -> None:
        values = _login_values(session, device, for_application=for_application)
        sql = begin_session_sql(in_browser=False, at_service=session.service is not None)
        await self._write(sql, **values, refresh_hash=refresh_hash, browser_hash=None)

    async def begin_browser_session(
        self, session: Session, browser_hash: bytes, device: Device | None, *, for_application: bool = False
    ) -> None:
        values = _login_values(session, device, for_application=for_application)
        sql = begin_session_sql(in_browser=True, at_service=session.service is not None)
        await self._write(sql, **values, browser_hash=browser_hash)
        rate_limits.return_tokens(self._connection, session.created_at)

    async def record_success(self, session: Session, provider: str, device: Device | None = None) -> None:
        await self._write(
            f"""
            with login as (
                insert into login_events ({COLUMNS})
                values (gen_random_uuid(), %(user_id)s, %(session_id)s, %(org_id)s, %(service_id)s, %(external_client)s, %(provider)s, true,
                        %(address)s, %(agent)s, {RISK}, %(now)s, 'all', %(request_id)s, %(connection_id)s, %(received)s::text[])
                returning org_id, service_id, provider, created_at)
            {COUNT_LOGIN}""",
            user_id=session.user_id,
            session_id=session.id,
            org_id=session.service.org_id if session.service else None,
            service_id=session.service.id if session.service else None,
            external_client=_external_client(session),
            provider=provider,
            address=session.address,
            agent=session.agent,
            now=session.created_at,
            request_id=session.request_id,
            **_connection_values(session),
            **_risk_values(device),
        )

    async def remove(self, user_id: UUID, service_id: UUID | None = None) -> None:
        # Subtract from the first shard. The first shard may become negative, because only the sum
        # over the shards matters. Lock order: the totals by their key, as in the housekeeper, which
        # merges the shards. The housekeeper also deletes the totals for deleted services.
        of_service = "" if service_id is None else "and service_id = %(service_id)s"
        sql = f"""
            with removed as (
                delete from login_events where user_id = %(user_id)s {of_service}
                returning org_id, service_id, (created_at at time zone 'UTC')::date as day, provider, success)
            insert into login_totals as t (org_id, service_id, day, provider, shard, total)
            select r.org_id, r.service_id, r.day, r.provider, 0, -count(*)
            from removed r join services v on v.id = r.service_id
            where r.success group by r.org_id, r.service_id, r.day, r.provider order by r.org_id, r.service_id, r.day, r.provider
            on conflict (org_id, service_id, day, provider, shard) do update set total = t.total + excluded.total"""
        await self._run(sql, user_id=user_id, service_id=service_id)


FAILURE_COLUMNS: Final = """
    id, user_id, org_id, service_id, external_client, provider, success, reason, seen_by, address, agent, city, country, created_at,
    request_id, blocked_seconds, attempts, connection_id, fault, received, seconds_off"""
# A counted row's id is made from the values that it counts, so that the second attempt finds it.
COUNTED_ID: Final = """
    md5(concat_ws(' ', extract(epoch from t.minute), %(org_id)s::text, %(service_id)s::text, {seen_by}, {rest}))::uuid"""
NETWORK_ID: Final = COUNTED_ID.format(
    seen_by="c.seen_by",
    rest="""%(network)s::text, %(unnamed_provider)s::text, %(unnamed_reason)s::text, %(external_client)s::text,
        %(connection_id)s::text, %(fault)s::text""",
)
REST_ID: Final = COUNTED_ID.format(seen_by="w.seen_by", rest="%(many)s::text")
NAMED_IN_HOUR: Final = """
    (select from login_events l
     where not l.success and l.user_id is not null and l.created_at > %(now)s::timestamptz - interval '1 hour' and {log}
     limit %(most_named)s)"""
# The reasons of failures that a person without any credential can cause.
UNPROVED: Final = [
    each.value
    for each in (LoginFailure.CREDENTIALS, LoginFailure.EMAIL_CODE, LoginFailure.LOCKED, LoginFailure.PASSKEY, LoginFailure.CLOSED)
]
FAILED_IN_MINUTE: Final = "select l.id, l.user_id, l.seen_by, l.address from this_minute t join login_events l on not l.success and"

# The same statement serves all attempts, and writes equally many rows for all attempts, so that its time reveals no
# account (security B-2). The waiting application's organization knows its confirmed members and the application's
# users. Attempts at all remaining accounts, and without an account, are counted in the same way: a row per network and
# minute.
#
# wanted: an attempt writes a row for the platform, which names the account if there is an account. If an application
# waits, the attempt writes a second row for the organization, which counts the attempt unless the first row shows it to
# the organization. If the first row shows it, the attempt adds 0 to the row for the rest of the minute, which holds no
# address. If a platform owner proved who they are, their attempt counts in that row, too.
#
# The directory of the organization that manages an account closes it. The attempt's reason is then
# that the account is closed.
#
# placed: the attempt's row, or null if a limit is reached. Then the account's newest failure at the same application
# counts it, or else the row for the rest of the minute.
#
# logs: the organizations that see a new row, if a webhook has the event. Failures without a new row write no event. The
# event has the row's facts, which can be fewer than the caller has (`events.sign_in_failed`).
#
# Lock order: the account, and then the rows by id.
RECORD_FAILURE: Final = f"""
    with {ASYNC_COMMIT},
    this_minute as materialized (select date_trunc('minute', %(now)s::timestamptz, 'UTC') as minute from async_commit),
    account as materialized (
        select u.id, case when %(org_id)s::uuid is null
            or exists (
                select from memberships m where m.org_id = %(org_id)s and m.user_id = u.id and m.confirmed_at is not null)
            or exists (
                select from service_users r where r.service_id = %(service_id)s and r.user_id = u.id and r.org_id = %(org_id)s)
            or exists (select from scim_users s where s.org_id = %(org_id)s and s.user_id = u.id)
            then 'all' else 'platform' end as seen_by,
            case when %(reason)s = %(closed)s and exists (
                select from directory_blocks b where b.org_id = u.origin_org_id and b.user_id = u.id)
            then %(directory)s else %(reason)s end as reason,
            u.is_platform_owner and %(reason)s <> all(%(unproved)s) as is_owner
        from users u where u.id = %(user_id)s and u.anonymized_at is null for key share of u),
    of_minute as materialized (
        {FAILED_IN_MINUTE} l.org_id = %(org_id)s and l.created_at >= t.minute
        union all
        {FAILED_IN_MINUTE} l.org_id is null and %(org_id)s::uuid is null and l.created_at >= t.minute),
    of_hour as (
        {NAMED_IN_HOUR.format(log="l.org_id = %(org_id)s")}
        union all
        {NAMED_IN_HOUR.format(log="l.org_id is null and %(org_id)s::uuid is null")}),
    of_account as materialized (
        select f.* from account a cross join lateral (
            select l.id, l.org_id, l.service_id, l.external_client, l.seen_by, l.reason, l.created_at from login_events l
            where l.user_id = a.id and not l.success and l.created_at > %(now)s::timestamptz - interval '1 hour'
            order by l.created_at desc limit %(most)s) f),
    wanted (user_id, seen_by, reason, attempts, id) as (
        select a.id, a.seen_by, a.reason, 1,
            case when (select count(*) from of_account) < %(most)s and (select count(*) from of_hour) < %(most_named)s
                and (a.seen_by = 'all' or (select count(*) from of_account f where f.seen_by = a.seen_by) < %(most_elsewhere)s)
                and (a.reason <> %(locked)s or (
                    select count(*) from of_account f where f.reason = a.reason and f.seen_by = a.seen_by) < %(most_locked)s)
                then %(id)s::uuid
            else (select f.id from of_account f
                where f.service_id is not distinct from %(service_id)s and f.org_id is not distinct from %(org_id)s
                  and f.external_client is not distinct from %(external_client)s and f.seen_by = a.seen_by
                order by f.reason = a.reason desc, f.created_at desc limit 1) end
        from account a
        union all
        select null, c.seen_by, %(unnamed_reason)s, case when c.is_shown then 0 else 1 end,
            case when not c.is_shown and not exists (select from account where is_owner) and (
                exists (select from of_minute m where m.id = {NETWORK_ID})
                or (select count(*) from of_minute m where m.user_id is null and m.address is not null and m.seen_by = c.seen_by)
                    < %(most_networks)s) then {NETWORK_ID} end
        from this_minute t cross join (
            select 'platform' as seen_by, false as is_shown where not exists (select from account)
            union all
            select 'organization', exists (select from account where seen_by = 'all') where %(org_id)s::uuid is not null) c),
    placed as materialized (
        select coalesce(w.id, {REST_ID}) as id, w.id is null as is_rest, w.id is not null and w.user_id is not null as is_named,
               case when w.id is not null then w.user_id end as user_id, w.seen_by, w.reason, w.attempts,
               case when w.user_id is null or w.id is null then t.minute else %(now)s end as at
        from wanted w cross join this_minute t),
    stored as (
        insert into login_events as t ({FAILURE_COLUMNS})
        select p.id, p.user_id, %(org_id)s, %(service_id)s, case when not p.is_rest then %(external_client)s end,
               case when p.is_named then %(provider)s when p.is_rest then '' else %(unnamed_provider)s end, false,
               case when p.is_rest then %(many)s else p.reason end, p.seen_by,
               case when p.is_named then %(address)s when not p.is_rest then %(network)s end,
               case when p.is_named then %(agent)s end,
               case when not p.is_rest then %(city)s end, case when not p.is_rest then %(country)s end, p.at,
               case when not p.is_rest then %(request_id)s end,
               case when p.is_named then %(blocked_seconds)s::integer end, p.attempts,
               case when not p.is_rest then %(connection_id)s::uuid end, case when not p.is_rest then %(fault)s end,
               case when not p.is_rest then %(received)s::text[] end, case when not p.is_rest then %(seconds_off)s::integer end
        from placed p
        order by p.id
        on conflict (id) do update set attempts = t.attempts + excluded.attempts
        returning {FAILURE_COLUMNS}),
    logs as (
        select s.log, %(event)s::text as name, s.created_at as at, null::uuid as actor_id, null::text as actor_kind,
               null::text as actor_name, null::text as actor_email, 'anonymous'::text as caller_kind, null::uuid as impersonator_id,
               coalesce(s.user_id::text, 'unknown') as target_id, d.data,
               jsonb_build_object('target_type', 'user', 'target_id', s.user_id) || d.data as payload
        from (
            select s.org_id as log, s.* from stored s where s.org_id is not null and s.seen_by <> 'platform'
            union all
            select m.org_id, s.* from stored s
            join memberships m on m.user_id = s.user_id and m.confirmed_at <= s.created_at
            join organizations o on o.id = m.org_id and o.approved_at is not null
            where s.org_id is null and s.seen_by = 'all') s
        join placed p on p.id = s.id and p.attempts = 1 and s.attempts = 1
        cross join lateral (
            select jsonb_build_object(
                'sign_in_id', s.id, 'user_id', s.user_id, 'service_id', s.service_id, 'provider', s.provider, 'reason', s.reason,
                'blocked_seconds', s.blocked_seconds, 'request_id', s.request_id) as data) d
        where exists (select from webhooks w where w.org_id = s.log and w.is_active and %(event)s = any(w.events))),
    delivered as ({DELIVER}),
    written as ({WRITE})
    select exists (select from delivered)"""


class FailedLogins(statements.DeliveringRepository):
    """Implements `ports.storage.authentication.sign_ins.FailedLogins`."""

    async def record_failure(self, failure: sign_in_log.FailedLogin) -> None:
        if failure.reason is LoginFailure.STATE:  # any page can cause it, so an empty bucket also stops the record
            await rate_limits.take_open_tokens(self._connection)
        is_delivered = await self._one(
            lambda row: bool(row[0]),
            RECORD_FAILURE,
            id=failure.id,
            user_id=failure.user_id,
            org_id=failure.org_id,
            service_id=failure.service_id,
            external_client=failure.external_client,
            provider=failure.provider,
            reason=failure.reason,
            # Nothing that depends on the account.
            unnamed_provider="" if failure.depends_on_account else failure.provider,
            unnamed_reason=sign_in_log.UNKNOWN_ACCOUNT if failure.depends_on_account else failure.reason,
            many=sign_in_log.MANY_ATTEMPTS,
            most=sign_in_log.MAX_FAILURES,
            locked=LoginFailure.LOCKED,
            most_locked=sign_in_log.MAX_LOCKED,
            most_elsewhere=sign_in_log.MAX_ELSEWHERE,
            closed=LoginFailure.CLOSED,
            unproved=UNPROVED,
            directory=LoginFailure.DIRECTORY,
            most_named=sign_in_log.MAX_NAMED_FAILURES,
            most_networks=sign_in_log.MAX_COUNTED_NETWORKS,
            address=failure.address,
            network=sign_in_log.to_network(failure.address),
            agent=failure.agent,
            city=failure.location.city if failure.location else None,
            country=failure.location.country if failure.location else None,
            now=failure.at,
            request_id=failure.request_id,
            blocked_seconds=failure.blocked_seconds,
            connection_id=failure.connection and failure.connection.connection_id,
            fault=failure.connection and failure.connection.fault,
            seconds_off=failure.connection and failure.connection.seconds_off,
            received=failure.connection and (sign_in_log.logged_names(failure.connection.received) or None),
            event=None if failure.reason is LoginFailure.LOGOUT else SIGN_IN_FAILED,  # it is no sign-in
            **self._delivery_values,
        )
        if is_delivered:
            self._signals.send(Signal.DELIVERIES_DUE)
