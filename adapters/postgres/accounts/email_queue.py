"""The repositories for the email queue, and for the one-time tokens in its emails."""

from collections.abc import Collection
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any, Final, LiteralString
from uuid import UUID

import structlog
from psycopg.types.json import Jsonb

from adapters.postgres.engine import records, statements
from adapters.postgres.engine.locks import RECIPIENTS
from adapters.postgres.engine.statements import ASYNC_COMMIT, PendingSignals
from core.accounts.model import email_queue
from core.kernel.values import Email
from ports import crypto
from ports.signals import Signal

log = structlog.get_logger("storage")


NUMBERED: Final = "from mails m where m.org_id = %(org_id)s and m.directory_number is not null"
NEXT_NUMBER: Final = f"coalesce((select m.directory_number {NUMBERED} order by m.directory_number desc limit 1), 0) + 1"
# One day after the email that is `per_day` positions earlier, unless that time has passed.
NEXT_DUE: Final = f"""
    greatest(%(due_at)s, (
        select m.due_at + interval '1 day' {NUMBERED} and m.directory_number <= next.number - %(per_day)s
        order by m.directory_number desc limit 1))"""

# The email goes through the organization's own server (`core.mailing.preparation`).
BY_OWN_SERVER: Final = """
    (kind = any(%(of_organizations)s) and exists (
        select 1 from smtp_settings s join invitations i on i.org_id = s.org_id and i.status = 'pending'
        where s.org_id = mails.org_id and i.email = mails.address and i.inviter_token_hash is null))"""


def secret_context(mail_id: UUID) -> crypto.SecretContext:
    return crypto.SecretContext("mails", str(mail_id), "token")


def to_json(notice: email_queue.SecretNotice) -> dict[str, object]:
    """Return a notice in its stored form."""
    return asdict(notice) | {"expires_at": notice.expires_at.isoformat()}


def to_secret_notice(stored: dict[str, Any]) -> email_queue.SecretNotice:
    return email_queue.SecretNotice(
        **stored | {"kind": email_queue.NoticedSecret(stored["kind"]), "expires_at": datetime.fromisoformat(stored["expires_at"])}
    )


MAIL: Final = records.Record(
    email_queue.QueuedEmail,
    "m",
    kind=email_queue.EmailKind,
    address=Email,
    token=None,
    continuation=records.Record(email_queue.LinkContinuation, "m").as_field(),
    secret=records.Column(read=to_secret_notice, write=lambda notice: Jsonb(to_json(notice))),
    notice_id="m.security_notice_id",
)


class EmailQueue(statements.SealingRepository):
    """Implements `ports.storage.accounts.emails.EmailQueue`."""

    def _to_email(self, row: statements.Row) -> email_queue.QueuedEmail:
        email, sealed = MAIL.read(row), row[MAIL.width]
        return email if sealed is None else replace(email, token=self._token(email.id, sealed))

    def _token(self, mail_id: UUID, sealed: bytes) -> str | None:
        try:
            return self._vault.open(sealed, secret_context(mail_id)).decode()
        except crypto.SealBroken as error:
            log.error("seal_broken", mail=str(mail_id), reason=str(error))  # noqa: TRY400  (the traceback adds nothing)
            return None

    def _sealed(self, email: email_queue.QueuedEmail, token: str) -> bytes:
        return self._vault.seal(token.encode(), secret_context(email.id))

    async def add(self, email: email_queue.QueuedEmail) -> None:
        self._add(email, "null::bigint", "%(due_at)s")

    async def add_within(self, email: email_queue.QueuedEmail, per_day: int) -> None:
        self._add(email, NEXT_NUMBER, NEXT_DUE, per_day=per_day)

    def _add(self, email: email_queue.QueuedEmail, number: LiteralString, due_at: LiteralString, **parameters: object) -> None:
        # The mailers listen on this channel. The payload is empty, because the queue has all data.
        # Emails that are due later need no notification and no signal: the mailers also poll.
        sql = f"""
            with queued as (
                insert into mails (id, kind, address, token, created_at, due_at, org_id, subscription_id, next_path, browser_hash,
                                   service_id, email_change_id, secret, security_notice_id, directory_number)
                select %(id)s, %(kind)s, %(address)s, %(token)s, %(created_at)s, {due_at}, %(org_id)s, %(subscription_id)s,
                       %(next_path)s, %(browser_hash)s, %(service_id)s, %(email_change_id)s::uuid, %(secret)s::jsonb,
                       %(security_notice_id)s::uuid, next.number
                from (select {number} as number) next
                returning due_at)
            select pg_notify('mails', '') from queued where due_at <= %(due_at)s"""
        queued = self._exists(
            sql, **parameters, **MAIL.values(email), token=None if email.token is None else self._sealed(email, email.token)
        )
        assert isinstance(self._signals, PendingSignals), "emails are queued in transactions"
        self._signals.send_if(queued, Signal.EMAIL_DUE)

    async def is_waiting(self, kind: email_queue.EmailKind, address: Email, org_id: UUID) -> bool:
        sql = "select 1 from mails where address = %(address)s and kind = %(kind)s and org_id = %(org_id)s and finished_at is null limit 1"
        return await self._exists(sql, address=address, kind=kind, org_id=org_id)

    async def withdraw(self, kind: email_queue.EmailKind, address: Email, org_id: UUID, now: datetime) -> None:
        sql = """
            update mails set finished_at = %(now)s, outcome = 'dropped', token = null, next_path = null, browser_hash = null
            where address = %(address)s and kind = %(kind)s and org_id = %(org_id)s and finished_at is null"""
        await self._write(sql, kind=kind, address=address, org_id=org_id, now=now)

    async def claim(
        self, now: datetime, lease_until: datetime, limit: int, busy: email_queue.BusyServers = email_queue.NO_BUSY_SERVERS
    ) -> list[email_queue.QueuedEmail]:
        # A database crash can take back the last claims and outcomes. Then the same messages are sent again, as after a
        # mailer crash.
        #
        # Keep the CTE `due`: without it the planner may update more rows than the limit.
        return await self._all(
            self._to_email,
            f"""
            with {ASYNC_COMMIT},
            due as (
                select id from mails
                where finished_at is null and due_at <= %(now)s
                  and (org_id is null or kind <> all(%(of_organizations)s) or org_id <> all(%(busy_org_ids)s::uuid[]))
                  and not (%(every_own_server)s and {BY_OWN_SERVER})
                  and case when %(platform)s then {BY_OWN_SERVER}
                      else array_position(%(served)s::uuid[], case when kind = any(%(in_turn)s) then org_id end) is null end
                order by due_at limit %(limit)s for update skip locked),
            claimed as (
                update mails m set claims = m.claims + 1, due_at = %(lease_until)s
                from due cross join async_commit where m.id = due.id
                returning m.*)
            select {MAIL.columns}, m.token from claimed m order by m.created_at""",
            now=now,
            lease_until=lease_until,
            limit=limit,
            of_organizations=[kind.value for kind in email_queue.SENT_BY_ORGANIZATIONS],
            busy_org_ids=list(busy.organizations),
            every_own_server=busy.every_own_server,
            platform=busy.platform,
            served=list(busy.served),
            in_turn=[kind.value for kind in email_queue.CAUSED_BY_ORGANIZATIONS],
        )

    async def save_token(self, email: email_queue.QueuedEmail, token: str | None, now: datetime) -> None:
        sql = """
            update mails set token = %(token)s, token_at = %(now)s
            where id = %(mail_id)s and claims = %(claims)s and finished_at is null"""
        await self._write(sql, mail_id=email.id, claims=email.claims, token=None if token is None else self._sealed(email, token), now=now)

    def is_claimed(self, email: email_queue.QueuedEmail) -> statements.Answer[bool]:
        sql = "select 1 from mails where id = %(mail_id)s and claims = %(claims)s and finished_at is null"
        return self._exists(sql, mail_id=email.id, claims=email.claims)

    async def count_since(
        self, address: Email, kinds: Collection[email_queue.EmailKind], since: datetime, org_id: UUID | None = None
    ) -> int:
        sql = """
            select count(*) from mails
            where address = %(address)s and kind = any(%(kinds)s) and token_at > %(since)s
              and (%(org_id)s::uuid is null or org_id = %(org_id)s)"""
        return await self._count(sql, address=address, kinds=[kind.value for kind in kinds], since=since, org_id=org_id)

    async def nth_newest_at(self, address: Email, kind: email_queue.EmailKind, n: int, org_id: UUID | None = None) -> datetime | None:
        sql = """
            select created_at from mails
            where address = %(address)s and kind = %(kind)s and (%(org_id)s::uuid is null or org_id = %(org_id)s)
            order by created_at desc offset %(skipped)s limit 1"""
        return await self._one(lambda row: row[0], sql, address=address, kind=kind, org_id=org_id, skipped=n - 1)

    async def lock_recipient(self, address: Email) -> None:
        # Two addresses with the same hash only cause a needless wait.
        await self._run(f"select pg_advisory_xact_lock({RECIPIENTS}, hashtext(%(address)s))", address=address)

    async def finish(
        self, email: email_queue.QueuedEmail, outcome: email_queue.EmailOutcome, now: datetime, *, reason: str | None = None
    ) -> None:
        # The goodbye is the last row with a deleted account's address.
        sql = f"""
            with {ASYNC_COMMIT}
            update mails set finished_at = %(now)s, outcome = %(outcome)s, token = null, next_path = null, browser_hash = null,
                             address = case when kind = 'account_deleted' then 'anonymized@deleted.local' else address end,
                             attempts = attempts + case when %(outcome)s = 'dropped' then 0 else 1 end,
                             last_failure = coalesce(%(reason)s, last_failure)
            from async_commit
            where id = %(mail_id)s and finished_at is null and (claims = %(claims)s or %(outcome)s = 'sent')"""
        await self._run(sql, mail_id=email.id, claims=email.claims, outcome=outcome, now=now, reason=reason)

    async def postpone(self, email: email_queue.QueuedEmail, due_at: datetime, reason: str) -> None:
        sql = """
            update mails set attempts = attempts + 1, due_at = %(due_at)s, last_failure = %(reason)s
            where id = %(mail_id)s and claims = %(claims)s and finished_at is null"""
        await self._run(sql, mail_id=email.id, claims=email.claims, due_at=due_at, reason=reason)


CONTINUATION: Final = records.Record(email_queue.LinkContinuation, "t")
TOKEN: Final = records.Record(email_queue.OneTimeToken, "t", hash="t.token_hash", continuation=CONTINUATION.as_field())


class OneTimeTokens(statements.Repository):
    """Implements `ports.storage.accounts.accounts.OneTimeTokens`."""

    async def live_email(self, token_hash: bytes, purpose: email_queue.TokenPurpose, now: datetime) -> Email | None:
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

    async def add(self, token: email_queue.OneTimeToken) -> None:
        await self._write(TOKEN.insert("one_time_tokens"), **TOKEN.values(token))

    async def continuation(self, token_hash: bytes, purpose: email_queue.TokenPurpose) -> email_queue.LinkContinuation | None:
        sql = f"""
            select {CONTINUATION.columns} from one_time_tokens t
            where t.purpose = %(purpose)s and t.token_hash = %(token_hash)s"""
        return await self._one(CONTINUATION.read, sql, purpose=purpose, token_hash=token_hash)

    async def sign_up(self, user_id: UUID, email: Email) -> email_queue.LinkContinuation | None:
        sql = f"""
            select {CONTINUATION.columns} from one_time_tokens t
            where user_id = %(user_id)s and purpose = 'verify_email' and email = %(email)s and browser_hash is not null
            order by created_at desc limit 1"""
        return await self._one(CONTINUATION.read, sql, user_id=user_id, email=email)

    def newer_exists(self, email: Email, purpose: email_queue.TokenPurpose, created_at: datetime) -> statements.Answer[bool]:
        sql = """
            select 1 from one_time_tokens t join users u on u.id = t.user_id
            where u.email = %(email)s and t.purpose = %(purpose)s and t.created_at > %(created_at)s and t.used_at is null
            limit 1"""
        return self._exists(sql, email=email, purpose=purpose, created_at=created_at)

    async def redeem(self, token_hash: bytes, purpose: email_queue.TokenPurpose, now: datetime) -> Email | None:
        sql = """
            update one_time_tokens set used_at = %(now)s
            where purpose = %(purpose)s and token_hash = %(token_hash)s and used_at is null and expires_at > %(now)s
            returning email"""
        return await self._one(lambda row: Email(row[0]), sql, token_hash=token_hash, purpose=purpose, now=now)

    async def void(self, user_id: UUID, purpose: email_queue.TokenPurpose) -> None:
        # A used token for the present address stays: its link says that the address is verified.
        sql = """
            delete from one_time_tokens t using users u
            where t.user_id = %(user_id)s and t.purpose = %(purpose)s and u.id = t.user_id
              and not (t.purpose = 'verify_email' and t.used_at is not null and t.email = u.email)"""
        await self._write(sql, user_id=user_id, purpose=purpose)
