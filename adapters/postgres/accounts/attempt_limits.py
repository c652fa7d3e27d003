"""Counters for failed attempts, which all processes share. An attempt is counted in a single atomic statement."""

from datetime import datetime
from typing import Final, LiteralString
from uuid import UUID

from adapters.postgres.accounts.accounts import ACCOUNT, to_account_if_any
from adapters.postgres.engine import statements
from core.accounts.model import attempt_limits
from core.accounts.model.devices import KnownBy
from core.authentication.model.login import LoginAttempt
from core.kernel.values import Email


def count_attempt_sql(subject: LiteralString, source: LiteralString = "") -> LiteralString:
    """Return the statement that counts an attempt at `subject` for every row in `source`. All arguments are SQL.

    The statement returns the time until which the attempt must wait, or null if the attempt was counted.
    """
    return f"""
    insert into guesses as g (secret, subject, failures, refused, started_at, blocked_until, expires_at)
    select %(secret)s, {subject}, 1, false, %(now)s,
           case when %(limit)s <= 1 then %(now)s + %(first_wait)s end, %(now)s + %(window)s + %(longest_wait)s
    {source}
    on conflict (secret, subject) do update set (failures, refused, started_at, blocked_until, expires_at) = (
        select failures, refused, started_at,
               case when refused then g.blocked_until
                    when failures >= %(limit)s
                    then %(now)s + least(%(first_wait)s * power(2, least(failures - %(limit)s, 20)), %(longest_wait)s) end,
               %(now)s + %(window)s + %(longest_wait)s
        from (select case when refused then g.failures when fresh then 1 else g.failures + 1 end as failures,
                     refused,
                     case when fresh then %(now)s else g.started_at end as started_at
              from (select coalesce(g.blocked_until > %(now)s, false) as refused,
                           %(now)s >= coalesce(g.blocked_until + %(quiet)s, g.started_at + %(window)s) as fresh) as judged
             ) as counted)
    returning case when refused then blocked_until end as blocked_until"""


DEVICE_SUBJECT: Final = "sha256(uuid_send(d.id))"


def subject_sql(user_id: LiteralString, email: LiteralString) -> LiteralString:
    """Return the subject for attempts from a client. Arguments are SQL.

    The subject is the device, if the account knows the client: attempts by strangers do not count there (security A-3).
    For unknown clients, the subject is the address.
    """
    return f"""
    coalesce(
        (select {DEVICE_SUBJECT} from devices d
         where d.user_id = {user_id} and d.revoked_at is null
           and (d.trust_hash = %(trust_hash)s and d.trust_expires_at > %(now)s or d.client_hash = %(client_hash)s)
         order by d.trust_hash = %(trust_hash)s desc nulls last limit 1),
        sha256(convert_to({email}, 'UTF8')))"""


COUNT_PASSWORD_ATTEMPT: Final = f"""
    with account as (select {ACCOUNT.columns} from users u where u.email = %(email)s),
    counted as (select {subject_sql("(select id from account)", "%(email)s")} as subject),
    charged as ({count_attempt_sql("subject", "from counted")})
    select counted.subject, charged.blocked_until, {ACCOUNT.columns} from counted cross join charged left join account u on true"""


def attempt_parameters(secret: attempt_limits.SecretKind, attempt_limit: attempt_limits.AttemptLimit, now: datetime) -> dict[str, object]:
    """Return the parameters for the statement from `count_attempt_sql`."""
    return {
        "secret": secret,
        "limit": attempt_limit.limit,
        "window": attempt_limit.window,
        "first_wait": attempt_limit.first_wait,
        "longest_wait": attempt_limit.longest_wait,
        "quiet": attempt_limit.quiet,
        "now": now,
    }


def to_login_attempt(row: statements.Row) -> LoginAttempt:
    return LoginAttempt(account=to_account_if_any(row[2:]), subject=row[0], blocked_until=row[1])


class AttemptLimits(statements.Repository):
    """Implements `ports.storage.accounts.security.AttemptLimits`.

    The attempt that reaches the limit is still allowed, and makes the next attempt wait. A later attempt is allowed
    after its wait, and doubles the wait. A quiet period resets the counter.
    """

    async def count_attempt(
        self, secret: attempt_limits.SecretKind, subject: bytes, attempt_limit: attempt_limits.AttemptLimit, now: datetime
    ) -> datetime | None:
        return await self._one(
            lambda row: row[0], count_attempt_sql("%(subject)s"), subject=subject, **attempt_parameters(secret, attempt_limit, now)
        )

    async def count_password_attempt(
        self, email: Email, known: KnownBy, attempt_limit: attempt_limits.AttemptLimit, now: datetime
    ) -> LoginAttempt:
        attempt = await self._one(
            to_login_attempt,
            COUNT_PASSWORD_ATTEMPT,
            email=email,
            trust_hash=known.trust_hash,
            client_hash=known.client_hash,
            **attempt_parameters(attempt_limits.SecretKind.PASSWORD, attempt_limit, now),
        )
        assert attempt is not None, "the statement always returns a row"
        return attempt

    async def uncount(self, secret: attempt_limits.SecretKind, subject: bytes, attempt_limit: attempt_limits.AttemptLimit) -> None:
        # If this attempt reached the limit, the wait that it caused ends too.
        sql = """
            update guesses set failures = failures - 1, blocked_until = case when failures > %(limit)s then blocked_until end
            where secret = %(secret)s and subject = %(subject)s and failures > 0"""
        await self._run(sql, secret=secret, subject=subject, limit=attempt_limit.limit)

    async def clear_of_account(self, secret: attempt_limits.SecretKind, user_id: UUID, email: Email) -> None:
        sql = f"""
            delete from guesses
            where secret = %(secret)s
              and (subject = sha256(convert_to(%(email)s, 'UTF8'))
                   or subject in (select {DEVICE_SUBJECT} from devices d where d.user_id = %(user_id)s and d.revoked_at is null))"""
        await self._write(sql, secret=secret, user_id=user_id, email=email)

    async def clear(self, secret: attempt_limits.SecretKind, subject: bytes) -> None:
        await self._write("delete from guesses where secret = %(secret)s and subject = %(subject)s", secret=secret, subject=subject)
