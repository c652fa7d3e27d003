"""The queue of mails."""

from collections.abc import Collection
from datetime import datetime
from typing import Final, LiteralString
from uuid import UUID

import structlog

from adapters.postgres.engine.locks import RECIPIENTS
from adapters.postgres.engine.statements import Row, SealingRepository
from core.accounts.email_queue_rules import NO_BUSY_SERVERS, SENT_BY_ORGANIZATIONS, BusyServers, QueuedEmail, EmailKind, EmailOutcome
from core.kernel.values import Email
from ports.crypto import Place, SealBroken

log = structlog.get_logger("storage")


NUMBERED: Final = "from mails m where m.org_id = %(org_id)s and m.directory_number is not null"
NEXT_NUMBER: Final = f"coalesce((select m.directory_number {NUMBERED} order by m.directory_number desc limit 1), 0) + 1"
# A day after the one so many before, if that is still to come.
NEXT_DUE: Final = f"""
    greatest(%(due_at)s, (
        select m.due_at + interval '1 day' {NUMBERED} and m.directory_number <= next.number - %(per_day)s
        order by m.directory_number desc limit 1))"""


def place(mail_id: UUID) -> Place:
    return Place("mails", str(mail_id), "token")


class EmailQueue(SealingRepository):
    """ports.storage.Mails."""

    def _to_mail(self, row: Row) -> QueuedEmail:
        return QueuedEmail(
            id=row[0],
            kind=EmailKind(row[1]),
            address=Email(row[2]),
            token=self._token(row[0], row[3]),
            claims=row[4],
            attempts=row[5],
            created_at=row[6],
            due_at=row[7],
            token_at=row[8],
            org_id=row[9],
            subscription_id=row[10],
        )

    def _token(self, mail_id: UUID, sealed: bytes | None) -> str | None:
        if sealed is None:
            return None
        try:
            return self._vault.open(sealed, place(mail_id)).decode()
        except SealBroken as error:
            log.error("seal_broken", mail=str(mail_id), reason=str(error))  # noqa: TRY400  (its trace says nothing more)
            return None

    def _sealed(self, mail: QueuedEmail, token: str) -> bytes:
        return self._vault.seal(token.encode(), place(mail.id))

    async def add(self, mail: QueuedEmail) -> None:
        await self._queue(mail, "null::bigint", "%(due_at)s")

    async def add_within(self, mail: QueuedEmail, per_day: int) -> None:
        await self._queue(mail, NEXT_NUMBER, NEXT_DUE, per_day=per_day)

    async def _queue(self, mail: QueuedEmail, number: LiteralString, due_at: LiteralString, **parameters: object) -> None:
        # A mailer listens on this channel; the payload says nothing, the queue says all. Of what is due some other day it finds out itself.
        await self._write(
            f"""
            with queued as (
                insert into mails (id, kind, address, token, created_at, due_at, org_id, subscription_id, directory_number)
                select %(id)s, %(kind)s, %(address)s, %(token)s, %(created_at)s, {due_at}, %(org_id)s, %(subscription_id)s, next.number
                from (select {number} as number) next
                returning due_at)
            select pg_notify('mails', '') from queued where due_at <= %(due_at)s""",
            **parameters,
            id=mail.id,
            kind=mail.kind,
            address=mail.address,
            token=None if mail.token is None else self._sealed(mail, mail.token),
            created_at=mail.created_at,
            due_at=mail.due_at,
            org_id=mail.org_id,
            subscription_id=mail.subscription_id,
        )
        self._signals.mails_due()

    async def is_waiting(self, kind: EmailKind, address: Email, org_id: UUID) -> bool:
        return await self._exists(
            "select 1 from mails where address = %(address)s and kind = %(kind)s and org_id = %(org_id)s and finished_at is null limit 1",
            address=address,
            kind=kind,
            org_id=org_id,
        )

    async def withdraw(self, kind: EmailKind, address: Email, org_id: UUID, now: datetime) -> None:
        await self._write(
            """
            update mails set finished_at = %(now)s, outcome = 'dropped', token = null
            where address = %(address)s and kind = %(kind)s and org_id = %(org_id)s and finished_at is null""",
            kind=kind,
            address=address,
            org_id=org_id,
            now=now,
        )

    async def claim(self, now: datetime, lease_until: datetime, limit: int, held_back: BusyServers = NO_BUSY_SERVERS) -> list[QueuedEmail]:
        # Without the common table expression the planner may update more rows than were asked for.
        return await self._all(
            self._to_mail,
            """
            with due as (
                select id from mails
                where finished_at is null and due_at <= %(now)s
                  and (org_id is null or kind <> all(%(of_organizations)s)
                       or org_id <> all(%(held_back)s::uuid[])
                          and (not %(every_own_server)s or not exists (select 1 from smtp_settings s where s.org_id = mails.org_id)))
                order by due_at limit %(limit)s for update skip locked),
            claimed as (
                update mails m set claims = m.claims + 1, due_at = %(lease_until)s
                from due where m.id = due.id
                returning m.id, m.kind, m.address, m.token, m.claims, m.attempts, m.created_at, m.due_at, m.token_at, m.org_id,
                          m.subscription_id)
            select id, kind, address, token, claims, attempts, created_at, due_at, token_at, org_id, subscription_id
            from claimed order by created_at""",
            now=now,
            lease_until=lease_until,
            limit=limit,
            of_organizations=[kind.value for kind in SENT_BY_ORGANIZATIONS],
            held_back=list(held_back.organizations),
            every_own_server=held_back.every_own_server,
        )

    async def save_token(self, mail: QueuedEmail, token: str | None, now: datetime) -> bool:
        return (
            await self._run(
                """
                update mails set token = %(token)s, token_at = %(now)s
                where id = %(mail_id)s and claims = %(claims)s and finished_at is null""",
                mail_id=mail.id,
                claims=mail.claims,
                token=None if token is None else self._sealed(mail, token),
                now=now,
            )
            == 1
        )

    async def count_since(self, address: Email, kinds: Collection[EmailKind], since: datetime) -> int:
        return (
            await self._one(
                lambda row: int(row[0]),
                "select count(*) from mails where address = %(address)s and kind = any(%(kinds)s) and token_at > %(since)s",
                address=address,
                kinds=[kind.value for kind in kinds],
                since=since,
            )
            or 0
        )

    async def lock_recipient(self, address: Email) -> None:
        # Two addresses of one number only wait for each other.
        await self._run(f"select pg_advisory_xact_lock({RECIPIENTS}, hashtext(%(address)s))", address=address)

    async def finish(self, mail: QueuedEmail, outcome: EmailOutcome, now: datetime, *, reason: str | None = None) -> None:
        await self._run(
            """
            update mails set finished_at = %(now)s, outcome = %(outcome)s, token = null,
                             attempts = attempts + case when %(outcome)s = 'dropped' then 0 else 1 end,
                             last_failure = coalesce(%(reason)s, last_failure)
            where id = %(mail_id)s and finished_at is null and (claims = %(claims)s or %(outcome)s = 'sent')""",
            mail_id=mail.id,
            claims=mail.claims,
            outcome=outcome,
            now=now,
            reason=reason,
        )

    async def postpone(self, mail: QueuedEmail, due_at: datetime, reason: str) -> None:
        await self._run(
            """
            update mails set attempts = attempts + 1, due_at = %(due_at)s, last_failure = %(reason)s
            where id = %(mail_id)s and claims = %(claims)s and finished_at is null""",
            mail_id=mail.id,
            claims=mail.claims,
            due_at=due_at,
            reason=reason,
        )
