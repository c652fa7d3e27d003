"""Codes that applications exchange for tokens (RFC 6749 section 4.1)."""

from datetime import datetime
from uuid import UUID

from adapters.postgres.statements import Repository, Row
from core.access import BrowserSession
from core.oauth import AuthorizationCode, IssuedCode
from core.values import Email


def to_issued(row: Row) -> IssuedCode:
    return IssuedCode(
        user_id=row[0],
        email=Email(row[1]),
        email_verified=row[2],
        service_id=row[3],
        address=row[4],
        agent=row[5],
        browser=BrowserSession(*row[6:]),
    )


class AuthorizationCodes(Repository):
    """ports.storage.AuthorizationCodes."""

    async def find(self, code_hash: bytes) -> IssuedCode | None:
        return await self._one(
            to_issued,
            """
            select u.id, u.email, u.email_verified_at is not null, c.service_id, b.address, b.agent,
                   b.id, b.provider, b.device_id, b.created_at
            from authorization_codes c join users u on u.id = c.user_id join sessions b on b.id = c.browser_session_id
            where c.code_hash = %(code_hash)s""",
            code_hash=code_hash,
        )

    async def add(self, code: AuthorizationCode, code_hash: bytes) -> bool:
        return await self._exists(
            """
            insert into authorization_codes (code_hash, org_id, service_id, user_id, browser_session_id, redirect_uri, code_challenge,
                                             created_at, expires_at)
            select %(code_hash)s, %(org_id)s, %(service_id)s, %(user_id)s, %(browser_session_id)s, %(redirect_uri)s, %(code_challenge)s,
                   %(created_at)s, %(expires_at)s
            where %(service_id)s::uuid is null or exists (
                select 1 from services v where v.org_id = %(org_id)s and v.id = %(service_id)s)
            returning 1""",
            code_hash=code_hash,
            org_id=code.service.org_id if code.service else None,
            service_id=code.service.id if code.service else None,
            user_id=code.user_id,
            browser_session_id=code.browser_session_id,
            redirect_uri=code.redirect_uri,
            code_challenge=code.code_challenge,
            created_at=code.created_at,
            expires_at=code.expires_at,
        )

    async def redeem(
        self, code_hash: bytes, redirect_uri: str | None, challenge: str | None, session_id: UUID, now: datetime, *, registered: bool
    ) -> bool:
        return await self._exists(
            """
            update authorization_codes c set session_id = %(session_id)s
            from sessions b
            where c.code_hash = %(code_hash)s and c.session_id is null and c.expires_at > %(now)s
              and (c.redirect_uri is not distinct from %(redirect_uri)s or c.redirect_uri is null and %(registered)s)
              and c.code_challenge is not distinct from %(challenge)s
              and b.id = c.browser_session_id and b.ended_at is null and b.expires_at > %(now)s
            returning 1""",
            code_hash=code_hash,
            redirect_uri=redirect_uri,
            registered=registered,
            challenge=challenge,
            session_id=session_id,
            now=now,
        )

    async def given(self, code_hash: bytes) -> UUID | None:
        return await self._one(
            lambda row: row[0], "select session_id from authorization_codes where code_hash = %(code_hash)s", code_hash=code_hash
        )
