"""Counters of wrong guesses: each charge is one atomic statement, shared by all processes."""

from datetime import datetime
from typing import Final, LiteralString

from adapters.postgres.accounts.accounts import COLUMNS as ACCOUNT
from adapters.postgres.accounts.accounts import to_account
from adapters.postgres.engine.statements import Repository, Row
from core.accounts.attempt_limits_rules import AttemptLimit, SecretKind
from core.authentication.login_rules import LoginAttempt
from core.kernel.values import Email, digest


def charge(subject: LiteralString, source: LiteralString = "", counter: LiteralString = "%(secret)s") -> LiteralString:
    """The statement that counts a guess at this subject, if there is a row in the source. What it returns is the verdict: until when the
    guess must wait, or null if it was counted. All three are SQL; the last one is the name of the counter."""
    return f"""
    insert into guesses as g (secret, subject, failures, refused, started_at, blocked_until, expires_at)
    select {counter}, {subject}, 1, false, %(now)s,
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


CHARGE_PASSWORD: Final = f"""
    with account as (select {ACCOUNT} from users u where u.email = %(email)s),
    counted as (
        select case when trusted then %(trusted_secret)s else %(secret)s end as secret,
               case when trusted then %(trust_hash)s::bytea else %(subject)s::bytea end as subject
        from (select exists (
                  select from devices d join account a on a.id = d.user_id
                  where d.trust_hash = %(trust_hash)s and d.trust_expires_at > %(now)s and d.revoked_at is null) as trusted) as known),
    charged as ({charge("subject", "from counted", "secret")})
    select counted.secret, counted.subject, charged.blocked_until, {ACCOUNT}
    from counted cross join charged left join account u on true"""


def terms(secret: SecretKind, attempt_limit: AttemptLimit, now: datetime) -> dict[str, object]:
    """What `charge` has to be told."""
    return {
        "secret": secret,
        "limit": attempt_limit.limit,
        "window": attempt_limit.window,
        "first_wait": attempt_limit.first_wait,
        "longest_wait": attempt_limit.longest_wait,
        "quiet": attempt_limit.quiet,
        "now": now,
    }


def to_guess(row: Row) -> LoginAttempt:
    return LoginAttempt(
        account=None if row[3] is None else to_account(row[3:]),
        secret=SecretKind(row[0]),
        subject=row[1],
        blocked_until=row[2],
    )


class AttemptLimits(Repository):
    """ports.storage.Guesses.

    The guess that reaches the limit is still admitted, and blocks the next one; each later guess is admitted when its wait is over, and
    doubles the wait. Quiet forgets everything.
    """

    async def count_attempt(self, secret: SecretKind, subject: bytes, attempt_limit: AttemptLimit, now: datetime) -> datetime | None:
        return await self._one(
            lambda row: row[0],
            charge("%(subject)s"),
            subject=subject,
            **terms(secret, attempt_limit, now),
        )

    async def count_password_attempt(self, email: Email, trust_hash: bytes | None, attempt_limit: AttemptLimit, now: datetime) -> LoginAttempt:
        guess = await self._one(
            to_guess,
            CHARGE_PASSWORD,
            email=email,
            subject=digest(email),
            trust_hash=trust_hash,
            trusted_secret=SecretKind.PASSWORD_ON_TRUSTED_DEVICE,
            **terms(SecretKind.PASSWORD, attempt_limit, now),
        )
        assert guess is not None, "it always answers"
        return guess

    async def uncount(self, secret: SecretKind, subject: bytes, attempt_limit: AttemptLimit) -> None:
        # Where it was the one that reached the limit, nobody has to wait for it.
        await self._run(
            """
            update guesses set failures = failures - 1, blocked_until = case when failures > %(limit)s then blocked_until end
            where secret = %(secret)s and subject = %(subject)s and failures > 0""",
            secret=secret,
            subject=subject,
            limit=attempt_limit.limit,
        )

    async def clear(self, secret: SecretKind, subject: bytes) -> None:
        await self._write("delete from guesses where secret = %(secret)s and subject = %(subject)s", secret=secret, subject=subject)
