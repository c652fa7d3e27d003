"""The one-time token repository."""

from datetime import datetime
from uuid import UUID

from adapters.postgres.engine.statements import Answer, Repository
from core.accounts.model.email_queue import LinkContinuation, OneTimeToken, TokenPurpose
from core.kernel.values import Email


class OneTimeTokens(Repository):
    """Implements `ports.storage.accounts.accounts.OneTimeTokens`."""

    async def live_email(self, token_hash: bytes, purpose: TokenPurpose, now: datetime) -> Email | None:
        sql = """
            select email from one_time_tokens
            where purpose = %(purpose)s and token_hash = %(token_hash)s and used_at is null and expires_at > %(now)s"""
        return await self._one(lambda row: Email(row[0]), sql, token_hash=token_hash, purpose=purpose, now=now)

    async def verified_email(self, token_hash: bytes) -> Email | None:
        sql = """
            select t.email from one_time_tokens t join users u on u.id = t.user_id and u.email = t.email
            where t.purpose = 'verify_email' and t.token_hash = %(token_hash)s and t.used_at is not null
              and u.email_verified_at is not null and u.deactivated_at is null and u.anonymized_at is null"""
        return await self._one(lambda row: Email(row[0]), sql, token_hash=token_hash)

    async def add(self, token: OneTimeToken) -> None:
        await self._write(
            """
            insert into one_time_tokens (purpose, token_hash, user_id, email, created_at, expires_at, org_id, next_path, browser_hash,
                                         service_id)
            values (%(purpose)s, %(token_hash)s, %(user_id)s, %(email)s, %(created_at)s, %(expires_at)s, %(org_id)s, %(next_path)s,
                    %(browser_hash)s, %(service_id)s)""",
            purpose=token.purpose,
            token_hash=token.hash,
            user_id=token.user_id,
            email=token.email,
            created_at=token.created_at,
            expires_at=token.expires_at,
            org_id=token.org_id,
            next_path=token.continuation.next_path,
            browser_hash=token.continuation.browser_hash,
            service_id=token.continuation.service_id,
        )

    async def continuation(self, token_hash: bytes, purpose: TokenPurpose) -> LinkContinuation | None:
        sql = "select next_path, browser_hash, service_id from one_time_tokens where purpose = %(purpose)s and token_hash = %(token_hash)s"
        return await self._one(lambda row: LinkContinuation(*row), sql, purpose=purpose, token_hash=token_hash)

    async def sign_up(self, user_id: UUID, email: Email) -> LinkContinuation | None:
        sql = """
            select next_path, browser_hash, service_id from one_time_tokens
            where user_id = %(user_id)s and purpose = 'verify_email' and email = %(email)s and browser_hash is not null
            order by created_at desc limit 1"""
        return await self._one(lambda row: LinkContinuation(*row), sql, user_id=user_id, email=email)

    def newer_exists(self, email: Email, purpose: TokenPurpose, created_at: datetime) -> Answer[bool]:
        sql = """
            select 1 from one_time_tokens t join users u on u.id = t.user_id
            where u.email = %(email)s and t.purpose = %(purpose)s and t.created_at > %(created_at)s and t.used_at is null
            limit 1"""
        return self._exists(sql, email=email, purpose=purpose, created_at=created_at)

    async def redeem(self, token_hash: bytes, purpose: TokenPurpose, now: datetime) -> Email | None:
        sql = """
            update one_time_tokens set used_at = %(now)s
            where purpose = %(purpose)s and token_hash = %(token_hash)s and used_at is null and expires_at > %(now)s
            returning email"""
        return await self._one(lambda row: Email(row[0]), sql, token_hash=token_hash, purpose=purpose, now=now)

    async def void(self, user_id: UUID, purpose: TokenPurpose) -> None:
        # A used token for the present address stays: its link says that the address is verified.
        sql = """
            delete from one_time_tokens t using users u
            where t.user_id = %(user_id)s and t.purpose = %(purpose)s and u.id = t.user_id
              and not (t.purpose = 'verify_email' and t.used_at is not null and t.email = u.email)"""
        await self._write(sql, user_id=user_id, purpose=purpose)
