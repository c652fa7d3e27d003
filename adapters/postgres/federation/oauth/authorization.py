"""OAuth authorization codes (RFC 6749 section 4.1)."""

from datetime import datetime
from typing import Final
from uuid import UUID

from adapters.postgres.authentication.live_sessions import SESSION_NOT_ENDED
from adapters.postgres.engine.statements import Repository, Row
from core.federation.oauth.authorization_rules import AuthorizationCode, IssuedCode
from core.kernel.principals import BrowserSession, ServiceContext
from core.kernel.values import Email


def to_issued_code(row: Row) -> IssuedCode:
    return IssuedCode(
        user_id=row[0],
        email=Email(row[1]),
        email_verified=row[2],
        address=row[3],
        agent=row[4],
        browser=BrowserSession(*row[5:]),
    )


# Only codes of the client that presents one, so that it cannot find those of other organizations.
# The platform's frontend has neither an organization nor a service, so both ids are null.
BY_CLIENT: Final = "c.org_id is not distinct from %(org_id)s and c.service_id is not distinct from %(service_id)s"


def client_parameters(service: ServiceContext | None) -> dict[str, UUID | None]:
    """Return the parameters of BY_CLIENT."""
    return {"org_id": service.org_id if service else None, "service_id": service.id if service else None}


class AuthorizationCodes(Repository):
    """Authorization codes in PostgreSQL."""

    async def find(self, code_hash: bytes, service: ServiceContext | None) -> IssuedCode | None:
        return await self._one(
            to_issued_code,
            f"""
            select u.id, u.email, u.email_verified_at is not null, b.address, b.agent, b.id, b.provider, b.device_id, b.created_at
            from authorization_codes c join users u on u.id = c.user_id join sessions b on b.id = c.browser_session_id
            where c.code_hash = %(code_hash)s and {BY_CLIENT}""",
            code_hash=code_hash,
            **client_parameters(service),
        )

    async def add(self, code: AuthorizationCode, code_hash: bytes) -> bool:
        # Lock the service with `for key share`: it must not be deleted before this row, which
        # refers to it, is committed.
        return await self._exists(
            """
            insert into authorization_codes (code_hash, org_id, service_id, user_id, browser_session_id, redirect_uri, code_challenge,
                                             created_at, expires_at)
            select %(code_hash)s, %(org_id)s, %(service_id)s, %(user_id)s, %(browser_session_id)s, %(redirect_uri)s, %(code_challenge)s,
                   %(created_at)s, %(expires_at)s
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
        )

    async def redeem(
        self,
        code_hash: bytes,
        service: ServiceContext | None,
        redirect_uri: str | None,
        challenge: str | None,
        session_id: UUID,
        now: datetime,
        *,
        registered: bool,
    ) -> bool:
        # ACCOUNT_IS_USABLE is missing, because the caller has locked a usable account.
        # MAY_IMPERSONATE is missing, because no impersonation has a browser session.
        return await self._exists(
            f"""
            update authorization_codes c set session_id = %(session_id)s
            from sessions s
            where c.code_hash = %(code_hash)s and {BY_CLIENT} and c.session_id is null and c.expires_at > %(now)s
              and (c.redirect_uri is not distinct from %(redirect_uri)s or c.redirect_uri is null and %(registered)s)
              and c.code_challenge is not distinct from %(challenge)s
              and s.id = c.browser_session_id and {SESSION_NOT_ENDED}
            returning 1""",
            code_hash=code_hash,
            redirect_uri=redirect_uri,
            registered=registered,
            challenge=challenge,
            session_id=session_id,
            now=now,
            **client_parameters(service),
        )

    async def session_started_by(self, code_hash: bytes, service: ServiceContext | None) -> UUID | None:
        return await self._one(
            lambda row: row[0],
            f"select c.session_id from authorization_codes c where c.code_hash = %(code_hash)s and {BY_CLIENT}",
            code_hash=code_hash,
            **client_parameters(service),
        )
