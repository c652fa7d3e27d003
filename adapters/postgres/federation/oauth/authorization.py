"""OAuth authorization codes (RFC 6749 section 4.1), pushed authorization requests (RFC 9126), and used client assertions."""

from datetime import datetime
from typing import Final
from uuid import UUID

from adapters.postgres.accounts.accounts import ACCOUNT, ACCOUNT_IS_USABLE, SELECT
from adapters.postgres.applications import end_users, services
from adapters.postgres.applications.service_access import may_use
from adapters.postgres.authentication import openid
from adapters.postgres.authentication.openid import grant_columns
from adapters.postgres.authentication.session_contexts import BROWSER_SESSION, SESSION_NOT_ENDED
from adapters.postgres.engine import statements
from adapters.postgres.engine.statements import Repository
from adapters.postgres.kernel.rate_limits import charge_parameters, charge_sql
from core.accounts.model.accounts import Account
from core.applications.model.plans import Entitlement
from core.federation.oauth.model import authorization
from core.kernel.callers import ServiceContext
from core.kernel.rate_limits import Bucket


def to_redeemed_code(row: statements.Row) -> authorization.RedeemedAuthorizationCode:
    (address, agent), further = row[:2], row[2:]
    grant = further[BROWSER_SESSION.width :]
    return authorization.RedeemedAuthorizationCode(
        address=address, agent=agent, browser=BROWSER_SESSION.read(further), openid=openid.to_grant(grant), nonce=grant[openid.GRANT_WIDTH]
    )


# Only a code for the client that presents it, so that the client cannot find codes in other
# organizations. The platform's frontend has neither an organization nor a service, so both ids are
# null.
BY_CLIENT: Final = "c.org_id is not distinct from %(org_id)s and c.service_id is not distinct from %(service_id)s"

# The user who got the code that was redeemed for this session. Without such a code, no user is
# enrolled.
REDEEMER: Final = "(select c.user_id from authorization_codes c where c.code_hash = %(code_hash)s and c.session_id = %(session_id)s)"
ENROLL: Final = end_users.enroll_sql(
    "id = %(service_id)s", users=f"a.id = {REDEEMER}", admits=f"{REDEEMER} is not null and {may_use('services', REDEEMER)}"
)
ENTITLEMENT: Final = services.context_and_entitlement_sql(REDEEMER)


def client_parameters(service: ServiceContext | None) -> dict[str, UUID | None]:
    """Return the parameters for BY_CLIENT."""
    return {"org_id": service.org_id if service else None, "service_id": service.id if service else None}


class AuthorizationCodes(statements.Repository):
    """Authorization codes in PostgreSQL."""

    async def add(self, code: authorization.AuthorizationCode, code_hash: bytes) -> bool:
        # Lock the service with `for key share`: it must not be deleted before this row, which
        # refers to it, is committed. Another user's sign-in may have stored the external client later than this code's time.
        return await self._exists(
            """
            insert into authorization_codes (code_hash, org_id, service_id, user_id, browser_session_id, redirect_uri, code_challenge,
                                             created_at, expires_at, nonce, key_thumbprint, scope, id_token_claims, userinfo_claims,
                                             resource, api_resource_id, api_scope, asked_scope, asked_acr)
            select %(code_hash)s, %(org_id)s, %(service_id)s, %(user_id)s, %(browser_session_id)s, %(redirect_uri)s, %(code_challenge)s,
                   greatest(%(created_at)s, (
                       select ac.created_at from api_resource_clients ac
                       where ac.resource_id = %(api_resource_id)s and ac.service_id = %(service_id)s)),
                   %(expires_at)s, %(nonce)s, %(key_thumbprint)s, %(scope)s::text[], %(id_token_claims)s::text[],
                   %(userinfo_claims)s::text[], %(resource)s, %(api_resource_id)s, %(api_scope)s::text[],
                   %(asked_scope)s::text[], %(asked_acr)s::text[]
            where %(service_id)s::uuid is null or exists (
                select 1 from services v where v.org_id = %(org_id)s and v.id = %(service_id)s for key share)
            returning 1""",
            code_hash=code_hash,
            **client_parameters(code.service),
            user_id=code.user_id,
            browser_session_id=code.browser_session_id,
            redirect_uri=code.redirect_uri,
            code_challenge=code.code_challenge,
            created_at=code.created_at,
            expires_at=code.expires_at,
            nonce=code.nonce,
            key_thumbprint=code.key_thumbprint,
            **openid.grant_parameters(code.openid),
        )

    def lock_account(self, code_hash: bytes, service: ServiceContext | None) -> statements.Answer[Account | None]:
        sql = f"""
            {SELECT}
            where u.id = (select c.user_id from authorization_codes c where c.code_hash = %(code_hash)s and {BY_CLIENT})
              and {ACCOUNT_IS_USABLE}
            for no key update"""
        return self._one(ACCOUNT.read, sql, code_hash=code_hash, **client_parameters(service))

    def redeem(
        self, code: authorization.PresentedCode, session_id: UUID, now: datetime, *, key_thumbprint: str | None = None
    ) -> statements.Answer[authorization.RedeemedAuthorizationCode | None]:
        # ACCOUNT_IS_USABLE is missing, because the caller has locked a usable account.
        # MAY_IMPERSONATE is missing, because no impersonation has a browser session.
        return self._one(
            to_redeemed_code,
            f"""
            update authorization_codes c set session_id = %(session_id)s
            from sessions s
            where c.code_hash = %(code_hash)s and {BY_CLIENT} and c.session_id is null and c.expires_at > %(now)s
              and (c.redirect_uri is not distinct from %(redirect_uri)s or c.redirect_uri is null and %(registered)s)
              and c.code_challenge is not distinct from %(challenge)s
              and (c.key_thumbprint is null or c.key_thumbprint = %(key_thumbprint)s)
              and s.id = c.browser_session_id and {SESSION_NOT_ENDED}
            returning s.address, s.agent, {BROWSER_SESSION.columns}, {grant_columns("c")}, c.nonce""",
            code_hash=code.hash,
            redirect_uri=code.redirect_uri,
            registered=code.is_registered,
            challenge=code.challenge,
            key_thumbprint=key_thumbprint,
            session_id=session_id,
            now=now,
            **client_parameters(code.service),
        )

    def enroll_redeemer(
        self, code_hash: bytes, service_id: UUID, session_id: UUID, now: datetime
    ) -> tuple[statements.Answer[bool], statements.Answer[tuple[ServiceContext, Entitlement] | None]]:
        values = {"code_hash": code_hash, "service_id": service_id, "session_id": session_id, **end_users.enrollment_parameters(now)}
        return self._exists(ENROLL, **values), self._one(services.to_context_and_entitlement, ENTITLEMENT, **values)

    async def use_up(self, code_hash: bytes, service: ServiceContext | None, session_id: UUID) -> None:
        sql = f"""
            update authorization_codes c set session_id = %(session_id)s
            where c.code_hash = %(code_hash)s and {BY_CLIENT} and c.session_id is null"""
        await self._run(sql, code_hash=code_hash, session_id=session_id, **client_parameters(service))

    async def session_started_by(self, code_hash: bytes, service: ServiceContext | None) -> UUID | None:
        sql = f"select c.session_id from authorization_codes c where c.code_hash = %(code_hash)s and {BY_CLIENT}"
        return await self._one(lambda row: row[0], sql, code_hash=code_hash, **client_parameters(service))


# A request by this client that can still be used. The client is an organization's service, or the platform's frontend,
# where all three ids are null.
LIVE: Final = """
    p.request_hash = %(request_hash)s and p.used_at is null and p.expires_at > %(now)s
    and case when %(client_id)s::uuid is null and %(client_uri)s::text is null then p.service_id is null
        else exists (select 1 from services v where v.id = p.service_id and v.org_id = p.org_id
                       and (v.client_id = %(client_id)s or v.client_uri = %(client_uri)s)) end"""


class PushedRequests(statements.Repository):
    """Implements the protocols for pushed requests in `ports.storage.federation`."""

    async def add(self, request: authorization.StoredRequest) -> bool:
        # Lock the service with `for key share`, as for a code: it must not be deleted before this row
        # is committed.
        return await self._exists(
            """
            insert into pushed_requests (request_hash, org_id, service_id, parameters, created_at, expires_at)
            select %(request_hash)s, %(org_id)s, %(service_id)s, %(parameters)s, %(created_at)s, %(expires_at)s
            where %(service_id)s::uuid is null or exists (
                select 1 from services v where v.org_id = %(org_id)s and v.id = %(service_id)s for key share)
            returning 1""",
            request_hash=request.request_hash,
            parameters=request.parameters,
            created_at=request.created_at,
            expires_at=request.expires_at,
            **client_parameters(request.service),
        )

    async def load(self, request_hash: bytes, client_id: UUID | None, now: datetime, client_uri: str | None = None) -> str | None:
        sql = f"select p.parameters from pushed_requests p where {LIVE}"
        return await self._one(lambda row: str(row[0]), sql, request_hash=request_hash, client_id=client_id, client_uri=client_uri, now=now)

    async def use(self, request_hash: bytes, now: datetime) -> bool:
        # The caller has loaded its client's request.
        sql = """
            update pushed_requests set used_at = %(now)s
            where request_hash = %(request_hash)s and used_at is null and expires_at > %(now)s returning 1"""
        return await self._exists(sql, request_hash=request_hash, now=now)


class UsedAssertions(Repository):
    """Implements `ports.storage.federation.oauth.UsedAssertions`."""

    async def use(
        self, issuer_id: UUID, jti_hash: bytes, expires_at: datetime, client_id: UUID, buckets: tuple[Bucket, ...], now: datetime
    ) -> float | None:
        charged = f", charged as ({charge_sql(len(buckets), 'from used')}) select wait from charged" if buckets else "select 0 from used"
        return await self._one(
            lambda row: float(row[0]),
            f"""
            with used as (
                insert into client_assertions (client_id, jti_hash, expires_at) values (%(issuer_id)s, %(jti_hash)s, %(expires_at)s)
                on conflict do nothing returning client_id)
            {charged}""",
            issuer_id=issuer_id,
            jti_hash=jti_hash,
            expires_at=expires_at,
            **charge_parameters(f"client {client_id}", buckets, now),
        )
