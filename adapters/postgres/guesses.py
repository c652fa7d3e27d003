"""Counters of wrong guesses: each charge is one atomic statement, shared by all processes."""

from datetime import datetime
from typing import Final

from adapters.postgres.statements import Repository
from core.guesses import Allowance, Secret

# The verdict is in the row that comes back: until when it must wait, or null if the guess was counted.
CHARGE: Final = """
    insert into guesses as g (secret, subject, failures, refused, started_at, blocked_until, expires_at)
    values (%(secret)s, %(subject)s, 1, false, %(now)s,
            case when %(limit)s <= 1 then %(now)s + %(first_wait)s end, %(now)s + %(window)s + %(longest_wait)s)
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
                           %(now)s >= coalesce(g.blocked_until, g.started_at) + %(window)s as fresh) as judged
             ) as counted)
    returning case when refused then blocked_until end"""
CLEAR: Final = "delete from guesses where secret = %(secret)s and subject = %(subject)s"


def charged(secret: Secret, subject: bytes, allowance: Allowance, now: datetime) -> dict[str, object]:
    """What CHARGE has to be told."""
    return {
        "secret": secret,
        "subject": subject,
        "limit": allowance.limit,
        "window": allowance.window,
        "first_wait": allowance.first_wait,
        "longest_wait": allowance.longest_wait,
        "now": now,
    }


class Guesses(Repository):
    """ports.storage.Guesses.

    The guess that reaches the limit is still admitted, and blocks the next one; each later guess is admitted when its wait is over, and
    doubles the wait. A quiet window forgets everything.
    """

    async def charge(self, secret: Secret, subject: bytes, allowance: Allowance, now: datetime) -> datetime | None:
        return await self._one(
            lambda row: row[0],
            CHARGE,
            **charged(secret, subject, allowance, now),
        )

    async def clear(self, secret: Secret, subject: bytes) -> None:
        await self._run(CLEAR, secret=secret, subject=subject)
