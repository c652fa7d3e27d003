"""Storage of sign-ins by email. The codes are encrypted."""

from datetime import datetime
from typing import Final
from uuid import UUID

from adapters.postgres.accounts.attempt_limits import attempt_parameters, count_attempt_sql, subject_sql
from adapters.postgres.engine.records import Record
from adapters.postgres.engine.statements import SealingRepository
from core.accounts.model.attempt_limits import AttemptLimit, SecretKind
from core.accounts.model.devices import KnownBy, Location
from core.authentication.model.login import EmailCodeAttempt, EmailSignIn
from core.kernel.values import Email
from ports.crypto import SecretContext

EMAIL_SIGN_IN: Final = Record(EmailSignIn, "s", email=Email, location=Record(Location, "s").as_field(if_any="country"))
# Lock the service with `for key share`: it may not be deleted before this row, which refers to it, is
# committed.
INSERT: Final = EMAIL_SIGN_IN.insert(
    "email_sign_ins",
    "request_hash",
    source="""
    where %(service_id)s::uuid is null
       or exists (select 1 from services where id = %(service_id)s and org_id = %(org_id)s for key share)
    returning 1""",
)
LIVE: Final = "s.used_at is null and s.expires_at > %(now)s"
# Lock the row first. Then every concurrent attempt that is counted for the address is also counted
# for the request.
COUNT_ATTEMPT: Final = f"""
    with s as (
        select * from email_sign_ins s
        where s.request_hash = %(request_hash)s and s.in_browser = %(in_browser)s and s.failures < %(tries)s and {LIVE} for update),
    counted as (select {subject_sql("s.user_id", "s.email")} as subject from s),
    charged as ({count_attempt_sql("subject", "from counted")}),
    tried as (
        update email_sign_ins e set failures = e.failures + 1 from s, charged where e.id = s.id and charged.blocked_until is null)
    select {EMAIL_SIGN_IN.columns}, s.code, counted.subject, charged.blocked_until from s cross join counted cross join charged"""


def secret_context(sign_in_id: UUID) -> SecretContext:
    return SecretContext("email_sign_ins", str(sign_in_id), "code")


class EmailSignIns(SealingRepository):
    """Implements `ports.storage.authentication.sign_ins.EmailSignIns` and `EmailCodeAttempts`."""

    def _code(self, sign_in_id: UUID, sealed: bytes | None) -> str | None:
        return None if sealed is None else self._vault.open(sealed, secret_context(sign_in_id)).decode()

    # The secret alone identifies a request, so these two statements cannot name an organization.
    async def by_request(self, request_hash: bytes, now: datetime) -> EmailSignIn | None:
        sql = f"select {EMAIL_SIGN_IN.columns} from email_sign_ins s where s.request_hash = %(request_hash)s and s.in_browser and {LIVE}"
        return await self._one(EMAIL_SIGN_IN.read, sql, request_hash=request_hash, now=now)

    async def by_link(self, link_hash: bytes, now: datetime) -> EmailSignIn | None:
        sql = f"select {EMAIL_SIGN_IN.columns} from email_sign_ins s where s.link_hash = %(link_hash)s and {LIVE}"
        return await self._one(EMAIL_SIGN_IN.read, sql, link_hash=link_hash, now=now)

    async def add(self, sign_in: EmailSignIn, request_hash: bytes) -> bool:
        return await self._exists(INSERT, **EMAIL_SIGN_IN.values(sign_in), request_hash=request_hash)

    async def find(self, sign_in_id: UUID, now: datetime) -> tuple[EmailSignIn, str | None, str | None] | None:
        return await self._one(
            lambda row: (EMAIL_SIGN_IN.read(row), row[EMAIL_SIGN_IN.width], self._code(row[0], row[EMAIL_SIGN_IN.width + 1])),
            f"""
            select {EMAIL_SIGN_IN.columns}, v.name, s.code from email_sign_ins s
            left join services v on v.id = s.service_id and v.org_id = s.org_id where s.id = %(id)s and {LIVE}""",
            id=sign_in_id,
            now=now,
        )

    async def issue(self, sign_in_id: UUID, user_id: UUID | None, link_hash: bytes | None, code: str) -> None:
        sql = "update email_sign_ins set user_id = %(user_id)s, link_hash = %(link_hash)s, code = %(code)s where id = %(id)s"
        await self._write(
            sql, id=sign_in_id, user_id=user_id, link_hash=link_hash, code=self._vault.seal(code.encode(), secret_context(sign_in_id))
        )

    async def remove_older(self, email: Email, created_at: datetime) -> None:
        sql = "delete from email_sign_ins where email = %(email)s and created_at < %(created_at)s"
        await self._write(sql, email=email, created_at=created_at)

    async def redeem(self, sign_in_id: UUID, now: datetime) -> bool:
        sql = "update email_sign_ins set used_at = %(now)s where id = %(id)s and used_at is null and expires_at > %(now)s"
        return await self._run(sql, id=sign_in_id, now=now) == 1

    async def void(self, user_id: UUID) -> None:
        await self._write("delete from email_sign_ins where user_id = %(user_id)s", user_id=user_id)

    async def count_attempt(
        self, request_hash: bytes, in_browser: bool, known: KnownBy, tries: int, attempt_limit: AttemptLimit, now: datetime
    ) -> EmailCodeAttempt | None:
        return await self._one(
            lambda row: EmailCodeAttempt(
                EMAIL_SIGN_IN.read(row), self._code(row[0], row[EMAIL_SIGN_IN.width]), *row[EMAIL_SIGN_IN.width + 1 :]
            ),
            COUNT_ATTEMPT,
            trust_hash=known.trust_hash,
            client_hash=known.client_hash,
            request_hash=request_hash,
            in_browser=in_browser,
            tries=tries,
            **attempt_parameters(SecretKind.EMAIL_CODE, attempt_limit, now),
        )
