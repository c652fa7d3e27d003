"""Storage for login records, and for the services' daily login totals."""

from functools import cache
from typing import Final, LiteralString
from uuid import UUID

from adapters.postgres.authentication.sessions import BEGIN, START_ROTATION, session_parameters
from adapters.postgres.engine.statements import Repository
from adapters.postgres.kernel.rate_limits import return_tokens
from core.accounts.model.devices import Device
from core.applications.model.client_names import known_name
from core.authentication.model.sessions import Session
from core.authentication.model.sign_in_log import logged_names
from core.kernel.proofs import first_method_of, in_session, used_connection
from core.kernel.values import new_id

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
            select %(login_id)s, user_id, id, case when service_id is null then %(bounded_to)s::uuid else org_id end, service_id,
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
        "provider": first_method_of(in_session(session.proofs, session.service.org_id if session.service else None)),
        "seen_by": seen_by,
        "external_client": _external_client(session),
        "request_id": session.request_id,
        **_connection_values(session),
        **_risk_values(device),
    }


def _connection_values(session: Session) -> dict[str, object]:
    """Return the connection through which the user signed in, and the names of the received claims, or None without a connection."""
    proof = used_connection(session.proofs, session.service.org_id if session.service else None)
    return {"connection_id": proof and proof.connection, "received": proof and (logged_names(proof.received) or None)}


class Logins(Repository):
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
        return_tokens(self._connection, session.created_at)

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
