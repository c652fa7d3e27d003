"""Storage of the trips of browsers to identity providers."""

from dataclasses import replace
from datetime import datetime
from typing import Final

from psycopg.types.json import Jsonb

from adapters.postgres.authentication.flows import FLOW, FlowRepository, add_flow_sql, push_out_parameters
from adapters.postgres.authentication.live_sessions import SESSION_NOT_ENDED
from adapters.postgres.engine.records import Column, Record
from adapters.postgres.engine.statements import Row
from core.authentication.flow.model import ProviderTrip
from core.kernel.connections import ConnectionSlug

TRIP: Final = Record(
    ProviderTrip,
    "f",
    provider=Column(sql="f.challenge ->> 'provider'", read=ConnectionSlug),
    scopes=Column(sql="f.challenge -> 'scopes'", read=tuple),
    user_id="f.challenge_user_id",
    begun_at="f.challenge_begun_at",
    expires_at="f.challenge_expires_at",
    flow=FLOW.as_field(),
)
# The session of the user who links an account may not end before this row, which refers to it, is committed. ACCOUNT_IS_USABLE
# and MAY_IMPERSONATE are missing, because the session is checked again when the browser returns.
SESSION_LIVES: Final = f"""
    (%(session_id)s::uuid is null or exists (
        select 1 from sessions s
        where s.id = %(session_id)s and s.user_id = %(challenge_user_id)s and {SESSION_NOT_ENDED} for key share))"""
NAMES: Final = ("challenge", "challenge_hash", "challenge_user_id", "challenge_begun_at", "challenge_expires_at")
ADD: Final = add_flow_sql(FLOW.insert("sign_in_flows", "identity", *NAMES, source=f"where {SESSION_LIVES} returning 1"))
# A ticket has a session and a secret. The browser that opens it uses it up.
START: Final = f"""
    update sign_in_flows set
        browser_hash = %(browser_hash)s, secret_hash = %(secret_hash)s, first_session_id = %(first_session_id)s,
        challenge_id = null, challenge_email = null, challenge_code = null, {", ".join(f"{name} = %({name})s" for name in NAMES)},
        expires_at = %(expires_at)s
    where id = %(id)s and closed_at is null and {SESSION_LIVES}
      and case when target in ('link', 'reauthentication') then secret_hash is not null else browser_hash = %(browser_hash)s end
    returning 1"""


class ProviderTrips(FlowRepository):
    """Implements `ports.storage.authentication.flows.ProviderTrips`."""

    async def start(self, trip: ProviderTrip, state_hash: bytes | None) -> bool:
        flow = trip.flow
        return await self._exists(
            START if flow.is_stored else ADD,
            # That of a SAML sign-on belongs to an API client.
            **FLOW.values(flow if trip.user_id is not None else replace(flow, session_id=None)),
            identity=None,
            challenge=Jsonb({"provider": trip.provider, "scopes": None if trip.scopes is None else list(trip.scopes)}),
            challenge_hash=state_hash,
            challenge_user_id=trip.user_id,
            challenge_begun_at=trip.begun_at,
            challenge_expires_at=trip.expires_at,
            now=trip.begun_at,
            **push_out_parameters(),
        )

    def _to_trip(self, row: Row) -> ProviderTrip:
        return TRIP.read(row)

    # The secret alone identifies a ticket, so this statement cannot name a browser.
    async def by_ticket(self, secret_hash: bytes, provider: ConnectionSlug, now: datetime) -> ProviderTrip | None:
        sql = f"""
            select {TRIP.columns} from sign_in_flows f
            where f.secret_hash = %(secret_hash)s and f.challenge ->> 'provider' = %(provider)s and f.closed_at is null
              and f.challenge_expires_at > %(now)s"""
        return await self._one(self._to_trip, sql, secret_hash=secret_hash, provider=provider, now=now)

    # The response of a provider names no organization, so this statement cannot either: the state
    # alone identifies the service.
    async def take(self, state_hash: bytes, browser_hash: bytes, provider: ConnectionSlug, now: datetime) -> ProviderTrip | None:
        sql = f"""
            with f as (
                select * from sign_in_flows f
                where f.challenge_hash = %(state_hash)s and f.browser_hash = %(browser_hash)s and f.challenge ->> 'provider' = %(provider)s
                  and f.closed_at is null and f.challenge_expires_at > %(now)s
                for update),
            taken as (
                update sign_in_flows t set challenge = null, challenge_hash = null, challenge_user_id = null, challenge_begun_at = null,
                                           challenge_expires_at = null
                from f where t.id = f.id)
            select {TRIP.columns} from f"""
        return await self._one(self._to_trip, sql, state_hash=state_hash, browser_hash=browser_hash, provider=provider, now=now)
