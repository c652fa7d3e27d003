"""Counters of wrong guesses: each charge is one atomic statement, shared by all processes."""

from datetime import datetime
from typing import LiteralString

from adapters.postgres.statements import Repository
from core.guesses import Allowance, Secret


def charge(subject: LiteralString, source: LiteralString = "") -> LiteralString:
    """The statement that counts a guess at this subject, if there is a row in the source. What it returns is the verdict: until when the
    guess must wait, or null if it was counted."""
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


def terms(secret: Secret, allowance: Allowance, now: datetime) -> dict[str, object]:
    """What `charge` has to be told."""
    return {
        "secret": secret,
        "limit": allowance.limit,
        "window": allowance.window,
        "first_wait": allowance.first_wait,
        "longest_wait": allowance.longest_wait,
        "quiet": allowance.quiet,
        "now": now,
    }


class Guesses(Repository):
    """ports.storage.Guesses.

    The guess that reaches the limit is still admitted, and blocks the next one; each later guess is admitted when its wait is over, and
    doubles the wait. Quiet forgets everything.
    """

    async def charge(self, secret: Secret, subject: bytes, allowance: Allowance, now: datetime) -> datetime | None:
        return await self._one(
            lambda row: row[0],
            charge("%(subject)s"),
            subject=subject,
            **terms(secret, allowance, now),
        )

    async def clear(self, secret: Secret, subject: bytes) -> None:
        await self._write("delete from guesses where secret = %(secret)s and subject = %(subject)s", secret=secret, subject=subject)
