"""The device repository, which also summarizes a user's earlier logins."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final, LiteralString
from uuid import UUID

from adapters.postgres.engine import records, statements
from core.accounts.model import devices
from core.accounts.model.devices import HIGH, TRUST_DAYS

DEVICE: Final = records.Record(
    devices.Device,
    "d",
    device_type=devices.DeviceType,
    methods=tuple,
    location=records.Record(devices.Location, "d").as_field(if_any="country"),
    risk=records.Record(devices.LoginRisk, "d", score="d.risk_score", factors=records.Column(sql="d.risk_factors", read=tuple)).as_field(),
)
ADD: Final = DEVICE.insert("devices")
UPDATE: Final = f"""
    update devices set {DEVICE.assignments(without=("id", "user_id", "client_hash", "created_at", "revoked_at"))}
    where id = %(id)s and user_id = %(user_id)s and revoked_at is null"""
to_device_if_any: Final = DEVICE.if_any("id")
# For an organization `o`. If it has a sign-in policy, the policy can shorten the period.
OWN_PERIOD: Final = """
    least(o.device_trust_days, case when o.sign_in_policy_version is not null then policy_device_trust_days(o.id) end)"""


def _trust_period(user_id: LiteralString, *, at_organization: bool = True) -> LiteralString:
    """Return the query for a user's trust periods in days, in SQL, and for whether the user is a confirmed member.

    The period is the shortest period among the organizations that the user is a confirmed member of. The period at the service includes the
    service's organization, if `at_organization`. An unconfirmed membership gives its organization no power over the account (security R-5).
    """
    of_service = f"union all select {OWN_PERIOD}, false from organizations o where o.id = %(org_id)s"
    return f"""
        select coalesce(min(t.days) filter (where t.is_member), {TRUST_DAYS}) as days, coalesce(min(t.days), {TRUST_DAYS}) as days_there,
            coalesce(bool_or(t.is_member), false) as is_member from (
            select {OWN_PERIOD} as days, true as is_member from memberships m join organizations o on o.id = m.org_id
            where m.user_id = {user_id} and m.confirmed_at is not null
            {of_service if at_organization else ""}) t"""


# With the columns that depend on the caller's session and organizations.
LISTED: Final = (
    f"{DEVICE.columns}, d.id is not distinct from (select s.device_id from sessions s where s.id = %(session_id)s::uuid), period.days_there"
)
IN_ORDER: Final = "order by d.last_used_at desc, d.id desc"

_WRONG: Final = ", ".join(f"'{reason}'" for reason in devices.WRONG_PROOFS)
# A successful sign-in `e` that makes later sign-ins usual.
_USUAL: Final = f"e.success and e.risk_score <= {HIGH} and e.connection_id is not distinct from %(connection_id)s"
# Every part stops counting at its limit. Only the search for a known location covers all times, and it has an index. Sign-ins at a
# connection have a separate history: its organization could make risky sign-ins look usual. Revoked devices have no `mfa_at`: the condition
# about them lets PostgreSQL use the index on devices that are not revoked.
HISTORY: Final = f"""
    (select count(*) from (
        select 1 from login_events e
        where e.user_id = %(user_id)s and not e.success and (e.reason is null or e.reason in ({_WRONG}))
          and e.created_at > greatest(
            %(failing_since)s,
            (select e.created_at from login_events e where e.user_id = %(user_id)s and {_USUAL} and e.created_at > %(failing_since)s
             order by e.created_at desc limit 1),
            (select max(d.mfa_at) from devices d where d.user_id = %(user_id)s and d.revoked_at is null))
        limit %(failures)s) failed),
    (select count(*) from (
        select 1 from login_events e where e.user_id = %(user_id)s and {_USUAL} and e.created_at > %(since)s limit %(habit)s) used),
    exists (
        select 1 from login_events e
        where e.user_id = %(user_id)s and {_USUAL} and e.created_at > %(since)s
          and extract(hour from e.created_at at time zone 'UTC') = extract(hour from %(now)s at time zone 'UTC'))"""
# Without a place, as in an installation without a place database, no login was there.
AT_PLACE: Final = f"""
    exists (
        select 1 from login_events e
        where e.user_id = %(user_id)s and {_USUAL} and e.country = %(country)s
          and coalesce(e.city, '') = coalesce(%(city)s, ''))"""
# A device with a client id never matches by its User-Agent header alone, because any client can
# send that. Every table and every join in this statement costs sign-ins time, also without rows.
# Keys: (signs in to an organization, location known).
MATCH: Final[Mapping[tuple[bool, bool], LiteralString]] = {
    (at_organization, has_place): f"""
    select {DEVICE.columns}, period.days, period.days_there, period.is_member,
        exists (select from account_recoveries r where r.user_id = %(user_id)s and r.expires_at > %(now)s),
        {HISTORY}, {AT_PLACE if has_place else "false"}
    from ({_trust_period("%(user_id)s", at_organization=at_organization)}) period
    left join lateral (
        select {DEVICE.columns} from devices d
        where d.user_id = %(user_id)s and d.revoked_at is null
          and (d.trust_hash = %(trust_hash)s or d.client_hash = %(client_hash)s
               or %(client_hash)s::bytea is null and d.client_hash is null
                  and d.browser = %(browser)s and d.os = %(os)s and d.device_type = %(device_type)s)
        order by (d.trust_hash = %(trust_hash)s) is true desc, d.last_used_at desc, d.id desc limit 1) d on true"""
    for at_organization in (False, True)
    for has_place in (False, True)
}


def to_listed_device(row: statements.Row, now: datetime) -> devices.ListedDevice:
    device = DEVICE.read(row)
    return devices.ListedDevice(device, row[DEVICE.width], device.remembers_second_factor(row[DEVICE.width + 1], now))


def _to_known_device(row: statements.Row) -> devices.KnownDevice:
    trust_days, trust_days_there, is_member, has_recovery, *history = row[DEVICE.width :]
    return devices.KnownDevice(to_device_if_any(row), trust_days, trust_days_there, has_recovery, is_member, devices.LoginHistory(*history))


class Devices(statements.Repository):
    """Implements `ports.storage.accounts.security.Devices`."""

    async def of_user(
        self, user_id: UUID, session_id: UUID | None, org_id: UUID | None, now: datetime, after: devices.Device | None, limit: int
    ) -> list[devices.ListedDevice]:
        next_page = "" if after is None else "and (d.last_used_at, d.id) < (%(after_at)s, %(after_id)s)"
        return await self._all(
            lambda row: to_listed_device(row, now),
            f"""
            with period as materialized ({_trust_period("%(user_id)s")})
            select {LISTED} from devices d cross join period
            where d.user_id = %(user_id)s and d.revoked_at is null {next_page} {IN_ORDER} limit %(limit)s""",
            user_id=user_id,
            session_id=session_id,
            org_id=org_id,
            after_at=after.last_used_at if after else None,
            after_id=after.id if after else None,
            limit=limit,
        )

    async def by_id(self, device_id: UUID, session_id: UUID, org_id: UUID | None, now: datetime) -> devices.ListedDevice | None:
        sql = f"""
            select {LISTED} from devices d
            cross join lateral ({_trust_period("d.user_id")}) period
            where d.id = %(device_id)s"""
        return await self._one(lambda row: to_listed_device(row, now), sql, device_id=device_id, session_id=session_id, org_id=org_id)

    def find_match(
        self, user_id: UUID, fingerprint: devices.DeviceFingerprint, org_id: UUID | None, now: datetime, connection_id: UUID | None = None
    ) -> statements.Answer[devices.KnownDevice | None]:
        return self._one(
            _to_known_device,
            MATCH[org_id is not None, fingerprint.location is not None],
            user_id=user_id,
            trust_hash=fingerprint.trust_hash,
            client_hash=fingerprint.client_hash,
            browser=fingerprint.user_agent.browser,
            os=fingerprint.user_agent.os,
            device_type=fingerprint.device_type.value,
            org_id=org_id,
            connection_id=connection_id,
            failing_since=now - devices.FAILURE_PERIOD,
            failures=devices.MAX_COUNTED_FAILURES,
            since=now - devices.HABIT_PERIOD,
            habit=devices.MIN_LOGINS_FOR_HABIT,
            now=now,
            city=fingerprint.location.city if fingerprint.location else None,
            country=fingerprint.location.country if fingerprint.location else None,
        )

    async def by_client(self, user_id: UUID, client_hash: bytes) -> devices.Device | None:
        sql = f"""
            select {DEVICE.columns} from devices d
            where d.user_id = %(user_id)s and d.client_hash = %(client_hash)s and d.revoked_at is null"""
        return await self._one(DEVICE.read, sql, user_id=user_id, client_hash=client_hash)

    async def add(self, device: devices.Device) -> None:
        await self._write(ADD, **DEVICE.values(device))

    async def update(self, device: devices.Device) -> None:
        await self._write(UPDATE, **DEVICE.values(device))

    async def rename(self, user_id: UUID, device_id: UUID, name: str, now: datetime) -> None:
        sql = """
            update devices set name = %(name)s, updated_at = %(now)s
            where user_id = %(user_id)s and id = %(device_id)s and revoked_at is null"""
        await self._run(sql, user_id=user_id, device_id=device_id, name=name, now=now)

    async def revoke(self, user_id: UUID, device_id: UUID, now: datetime) -> None:
        sql = """
            update devices set revoked_at = %(now)s, updated_at = %(now)s, trust_hash = null, trust_expires_at = null, mfa_at = null
            where user_id = %(user_id)s and id = %(device_id)s and revoked_at is null"""
        await self._run(sql, user_id=user_id, device_id=device_id, now=now)

    async def distrust(self, user_id: UUID, now: datetime) -> None:
        sql = """
            update devices set trust_hash = null, trust_expires_at = null, mfa_at = null, updated_at = %(now)s
            where user_id = %(user_id)s and (trust_hash is not null or mfa_at is not null)"""
        await self._run(sql, user_id=user_id, now=now)
