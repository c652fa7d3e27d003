"""Storage of login records, and of the daily login totals of services."""

from typing import Final, LiteralString
from uuid import UUID, uuid4

from adapters.postgres.authentication.sessions import BEGIN, START_ROTATION, session_parameters
from adapters.postgres.engine.statements import ASYNC_COMMIT, Repository
from core.accounts.model.devices import Device
from core.authentication.model.sessions import Session
from core.authentication.model.sign_in_log import MAX_FAILURES, UNKNOWN_ACCOUNT, FailedLogin

# Each total is split over this many rows, so that concurrent logins to one service rarely wait for
# each other's commit.
SHARDS: Final = 8

COLUMNS: Final = """
    id, user_id, session_id, org_id, service_id, provider, success, address, agent, risk_score, risk_factors, city, country, created_at,
    seen_by"""
RISK: Final = "%(risk_score)s, %(risk_factors)s::text[], %(city)s, %(country)s"
# Count the inserted row `login` in the total. Its day is in UTC, whatever the time zone of the
# connection is.
COUNT_LOGIN: Final = f"""
    insert into login_totals as t (org_id, service_id, day, provider, shard, total)
    select org_id, service_id, (created_at at time zone 'UTC')::date, provider, floor(random() * {SHARDS}), 1
    from login where service_id is not null
    on conflict (org_id, service_id, day, provider, shard) do update set total = t.total + 1"""


def begin_session_sql(of_secret: LiteralString = "") -> LiteralString:
    """Return the statement that adds a session and the record of its login. `of_secret` is a further CTE that reads `begun`."""
    return f"""
        with begun as ({BEGIN} returning id, user_id, org_id, service_id, provider, address, agent, created_at), {of_secret}
        login as (
            insert into login_events ({COLUMNS})
            select gen_random_uuid(), user_id, id, case when service_id is not null then org_id end, service_id, provider, true, address,
                   agent, {RISK}, created_at, %(seen_by)s
            from begun
            returning org_id, service_id, provider, created_at)
        {COUNT_LOGIN}"""


BEGIN_SESSION: Final = begin_session_sql(f"tokens as ({START_ROTATION}),")
BEGIN_BROWSER_SESSION: Final = begin_session_sql()

# One statement for all attempts, so that its time reveals no account (security B-2). The waiting application's
# organization knows its confirmed members and the users of the application. Attempts at all other accounts, and
# without an account, are counted: one row for each client address and minute, the same for both.
#
# Lock order: the account, and then the counted rows, the organization's first.
RECORD_FAILURE: Final = f"""
    with {ASYNC_COMMIT},
    account as materialized (
        select u.id, %(org_id)s::uuid is null
            or exists (
                select from memberships m where m.org_id = %(org_id)s and m.user_id = u.id and m.confirmed_at is not null)
            or exists (
                select from service_users r where r.service_id = %(service_id)s and r.user_id = u.id and r.org_id = %(org_id)s)
            as is_known
        from users u where u.id = %(user_id)s and u.anonymized_at is null for key share of u),
    named as (
        insert into login_events (
            id, user_id, org_id, service_id, provider, success, reason, seen_by, address, agent, city, country, created_at)
        select %(id)s, a.id, %(org_id)s, %(service_id)s, %(provider)s, false, %(reason)s,
               case when a.is_known then 'all' else 'platform' end, %(address)s, %(agent)s, %(city)s, %(country)s, %(now)s
        from account a
        where (select count(*) from (
            select from login_events f
            where f.user_id = a.id and not f.success and f.created_at > %(now)s::timestamptz - interval '1 hour'
            limit %(most)s) f) < %(most)s
        returning 1)
    insert into login_events as t (id, user_id, org_id, service_id, provider, success, reason, seen_by, address, city, country, created_at)
    select gen_random_uuid(), null::uuid, %(org_id)s, %(service_id)s, %(unnamed_provider)s, false, %(unnamed_reason)s, counted.seen_by,
           %(address)s, %(city)s, %(country)s, date_trunc('minute', %(now)s::timestamptz, 'UTC')
    from async_commit cross join (values ('organization'), ('platform')) counted (seen_by)
    where case counted.seen_by
        when 'organization' then %(org_id)s::uuid is not null and not exists (select from account where is_known)
        else not exists (select from account) end
    order by counted.seen_by
    on conflict (created_at, address, org_id, service_id, seen_by, provider, reason) where user_id is null
        do update set attempts = t.attempts + 1"""


def _risk_values(device: Device | None) -> dict[str, object]:
    """Return the parameters of RISK."""
    location = device.location if device else None
    return {
        "risk_score": device.risk.score if device else 0,
        "risk_factors": list(device.risk.factors) if device else [],
        "city": location.city if location else None,
        "country": location.country if location else None,
    }


class Logins(Repository):
    """Implements `ports.storage.authentication.sign_ins.Logins` and `FailedLogins`."""

    async def begin_session(self, session: Session, refresh_hash: bytes, device: Device | None) -> None:
        await self._write(
            BEGIN_SESSION,
            **session_parameters(session),
            refresh_hash=refresh_hash,
            browser_hash=None,
            seen_by="all",
            **_risk_values(device),
        )

    async def begin_browser_session(
        self, session: Session, browser_hash: bytes, device: Device | None, *, for_application: bool = False
    ) -> None:
        await self._write(
            BEGIN_BROWSER_SESSION,
            **session_parameters(session),
            browser_hash=browser_hash,
            seen_by="platform" if for_application else "all",
            **_risk_values(device),
        )

    async def record_success(self, session: Session, provider: str, device: Device | None = None) -> None:
        await self._write(
            f"""
            with login as (
                insert into login_events ({COLUMNS})
                values (gen_random_uuid(), %(user_id)s, %(session_id)s, %(org_id)s, %(service_id)s, %(provider)s, true, %(address)s,
                        %(agent)s, {RISK}, %(now)s, 'all')
                returning org_id, service_id, provider, created_at)
            {COUNT_LOGIN}""",
            user_id=session.user_id,
            session_id=session.id,
            org_id=session.service.org_id if session.service else None,
            service_id=session.service.id if session.service else None,
            provider=provider,
            address=session.address,
            agent=session.agent,
            now=session.created_at,
            **_risk_values(device),
        )

    async def remove(self, user_id: UUID, service_id: UUID | None = None) -> None:
        # Subtract from the first shard. It may become negative, because only the sum of the shards
        # matters. Lock order: the totals by their key, as in the housekeeper, which merges the
        # shards. The housekeeper also deletes the totals of deleted services.
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

    async def record_failure(self, failure: FailedLogin) -> None:
        await self._run(
            RECORD_FAILURE,
            id=uuid4(),
            user_id=failure.user_id,
            org_id=failure.org_id,
            service_id=failure.service_id,
            provider=failure.provider,
            reason=failure.reason,
            # Nothing that depends on the account.
            unnamed_provider="" if failure.depends_on_account else failure.provider,
            unnamed_reason=UNKNOWN_ACCOUNT if failure.depends_on_account else failure.reason,
            most=MAX_FAILURES,
            address=failure.address,
            agent=failure.agent,
            city=failure.location.city if failure.location else None,
            country=failure.location.country if failure.location else None,
            now=failure.at,
        )
