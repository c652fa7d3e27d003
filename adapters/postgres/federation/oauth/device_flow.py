"""Device codes (RFC 8628)."""

from datetime import datetime
from typing import Final
from uuid import UUID

from adapters.postgres.accounts.accounts import ACCOUNT
from adapters.postgres.applications.services import CONTEXT
from adapters.postgres.authentication import openid
from adapters.postgres.authentication.refresh_tokens import IS_CONFIDENTIAL
from adapters.postgres.authentication.sign_in_proofs import proof_columns
from adapters.postgres.engine import records
from adapters.postgres.engine.statements import Repository
from adapters.postgres.programs.api_resources import access_sql, to_resource_access
from core.federation.oauth.model import device_flow
from core.kernel import callers

# For a row in `request` and the session `s` that approved it
DEVICE_POLL: Final = records.Record(
    device_flow.DevicePoll,
    "request",
    service=CONTEXT.as_field(),
    status=device_flow.DeviceRequestStatus,
    account=ACCOUNT.as_field(if_any="id"),
    openid=records.Columns(
        "request.scope, null, null, request.resource, request.api_resource_id, request.api_scope, request.asked_scope, null, "
        + openid.resource_facts("request", "s.user_id"),
        openid.GRANT_WIDTH,
        openid.to_grant,
    ),
    proofs=proof_columns("s"),
    risk_is_high="coalesce(s.risk_is_high, false)",
)
# Lock the row first, so that a poll sees the changes that an earlier parallel poll made. A device needs to send only
# its code, so the organization is unknown here. If the device sends a client id too, a wrong client id counts as a
# failure. An external client with keys must have signed.
POLL: Final = f"""
    with request as (
        select d.device_code_hash, d.service_id, d.status, d.expires_at, d.session_id, d.failures >= %(errors)s as is_locked,
               (%(client_id)s::uuid is null or v.client_id = %(client_id)s)
                   and d.code_challenge is not distinct from %(challenge)s
                   and (%(is_authenticated)s or v.client_uri is null or not {IS_CONFIDENTIAL}) as is_matching,
               coalesce(%(now)s < d.polled_at + make_interval(secs => d.interval_seconds), false) as is_early,
               d.org_id, d.created_at, d.scope, d.resource, d.api_resource_id, d.api_scope, d.asked_scope
        from device_codes d join services v on v.id = d.service_id
        where d.device_code_hash = %(device_code_hash)s for update of d),
    counted as (
        update device_codes d
        set polled_at = %(now)s, failures = d.failures + case when request.is_matching then 0 else 1 end,
            interval_seconds = d.interval_seconds + case when request.is_early then %(slower)s else 0 end
        from request where d.device_code_hash = request.device_code_hash)
    select {DEVICE_POLL.columns}
    from request join (services v join organizations vo on vo.id = v.org_id) on v.id = request.service_id
    left join (sessions s join users u on u.id = s.user_id) on s.id = request.session_id"""
DEVICE_REQUEST: Final = records.Record(
    device_flow.DeviceRequest,
    "d",
    service="v.name",
    client_uri="v.client_uri",
    organization="o.name",
    organization_status=records.Column(sql="o.status", read=callers.OrganizationStatus),
    status=device_flow.DeviceRequestStatus,
    is_locked="d.failures >= %(errors)s",
    scope=records.Columns("d.scope", 1, lambda row: openid.to_scope(*row)),
    api=records.Column(
        sql=f"(select {access_sql('r', 'd.api_scope')} from api_resources r where r.id = d.api_resource_id and r.org_id = d.org_id)",
        read=to_resource_access,
    ),
)


class DeviceCodes(Repository):
    """Device codes in PostgreSQL, and device polls."""

    async def add(self, code: device_flow.DeviceCode) -> bool:
        # Lock the service with `for key share`: it must not be deleted before this row, which
        # refers to it, is committed.
        return await self._exists(
            """
            insert into device_codes (device_code_hash, user_code_hash, org_id, service_id, code_challenge, address, agent, status,
                                      interval_seconds, created_at, expires_at, scope, resource, api_resource_id, api_scope,
                                      asked_scope)
            select %(device_code_hash)s, %(user_code_hash)s, v.org_id, v.id, %(code_challenge)s, %(address)s, %(agent)s, 'pending',
                   %(interval)s, %(created_at)s, %(expires_at)s, %(scope)s::text[], %(resource)s, %(api_resource_id)s,
                   %(api_scope)s::text[], %(asked_scope)s::text[]
            from services v where v.org_id = %(org_id)s and v.id = %(service_id)s for key share
            on conflict (user_code_hash) do nothing returning 1""",
            device_code_hash=code.device_code_hash,
            user_code_hash=code.user_code_hash,
            org_id=code.service.org_id,
            service_id=code.service.id,
            code_challenge=code.code_challenge,
            address=code.address,
            agent=code.agent,
            interval=device_flow.POLL_INTERVAL,
            created_at=code.created_at,
            expires_at=code.expires_at,
            **openid.grant_parameters(code.openid),
        )

    # The user who enters a user code may belong to any organization or none, so this statement and
    # the next name no organization.

    async def by_user_code(self, user_code_hash: bytes) -> device_flow.DeviceRequest | None:
        sql = f"""
            select {DEVICE_REQUEST.columns}
            from device_codes d join services v on v.id = d.service_id join organizations o on o.id = d.org_id
            where d.user_code_hash = %(user_code_hash)s"""
        return await self._one(DEVICE_REQUEST.read, sql, user_code_hash=user_code_hash, errors=device_flow.MAX_FAILURES)

    async def decide(self, user_code_hash: bytes, status: device_flow.DeviceRequestStatus, session_id: UUID | None, now: datetime) -> bool:
        sql = """
            update device_codes set status = %(status)s, session_id = %(session_id)s
            where user_code_hash = %(user_code_hash)s and status = 'pending' and failures < %(errors)s and expires_at > %(now)s
            returning 1"""
        return await self._exists(
            sql, user_code_hash=user_code_hash, status=status, session_id=session_id, errors=device_flow.MAX_FAILURES, now=now
        )

    async def poll(
        self, device_code_hash: bytes, client_id: UUID | None, challenge: str | None, now: datetime, *, is_authenticated: bool = False
    ) -> device_flow.DevicePoll | None:
        return await self._one(
            DEVICE_POLL.read,
            POLL,
            device_code_hash=device_code_hash,
            client_id=client_id,
            challenge=challenge,
            is_authenticated=is_authenticated,
            errors=device_flow.MAX_FAILURES,
            slower=device_flow.SLOW_DOWN_STEP,
            now=now,
        )

    async def redeem(self, device_code_hash: bytes, service: callers.ServiceContext, now: datetime) -> bool:
        sql = """
            update device_codes set status = 'redeemed'
            where device_code_hash = %(device_code_hash)s and org_id = %(org_id)s and service_id = %(service_id)s
              and status = 'approved' and expires_at > %(now)s
            returning 1"""
        return await self._exists(sql, device_code_hash=device_code_hash, org_id=service.org_id, service_id=service.id, now=now)
