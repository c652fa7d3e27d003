"""The repositories for second factors and their log. Secrets are stored sealed."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final, LiteralString, cast
from uuid import UUID

from adapters.postgres.accounts.accounts import ACCOUNT
from adapters.postgres.engine import statements
from adapters.postgres.kernel.shared_sql import NO_PROOFS
from core.accounts.model import mfa
from core.accounts.model.attempt_limits import SecretKind
from core.authentication.flow.model import CLOSED_TTL, FLOW_TTL
from core.kernel.callers import Person
from core.kernel.causes import Caller
from core.kernel.values import new_id
from ports import crypto

TAKE_STEP: Final = """
    update mfa set last_step = %(step)s
    where user_id = %(user_id)s and setup_at = %(setup_at)s and (last_step is null or last_step < %(step)s)"""
USE_CODE: Final = """
    update backup_codes set used_at = %(now)s where user_id = %(user_id)s and code_hash = %(code_hash)s and used_at is null"""
# The times are a microsecond apart, so that the log keeps the event order.
LOG: Final = """
    insert into mfa_events (id, user_id, event_type, success, actor_id, impersonator_id, reason, address, agent, created_at)
    select gen_random_uuid(), %(user_id)s, event_type, %(success)s, %(actor_id)s, %(impersonator_id)s, %(reason)s, %(address)s, %(agent)s,
           %(now)s::timestamptz + (number - 1) * interval '1 microsecond'
    from unnest(%(events)s::text[]) with ordinality as happened (event_type, number)"""
ENROLLMENT: Final = "m.secret, m.setup_at, u.mfa_enabled_at, m.last_step, u.backup_codes_salt"
ENROLLMENT_COLUMN_COUNT: Final = 5
# For an account `u`, in the field order of `MfaStatus`
STATUS: Final = """
    u.mfa_enabled_at, u.passkey_second_at, u.passkey_count + u.security_key_count > 0,
    (select count(*) from backup_codes c where c.user_id = u.id and c.used_at is null)"""


def redeem_sql(taken: LiteralString) -> LiteralString:
    """Return the statement that locks an account, consumes its first factor and uses up its second factor.

    `taken` is a CTE with this name, which has a row if the second factor was used up. `taken` depends on `redeemed`.
    """
    # A CTE depends on the CTE before it. While this statement waits for the account's lock, concurrent transactions may
    # commit. PostgreSQL then evaluates updated and deleted rows again. PostgreSQL does not see new rows, but this
    # sign-in cannot refer to any.
    return f"""
        with locked as (select {ACCOUNT.columns} from users u where u.id = %(user_id)s for no key update),
        redeemed as (
            update sign_in_flows f set
                user_id = null, {NO_PROOFS},
                closed_at = case when browser_hash is null then %(now)s end,
                expires_at = %(now)s + case when browser_hash is null then %(closed_ttl)s else %(flow_ttl)s end
            from locked
            where f.id = %(flow_id)s and f.browser_hash is not distinct from %(browser_hash)s and f.user_id = locked.id
              and f.closed_at is null and f.proofs_expire_at = %(first_until)s and f.proofs_expire_at > %(now)s
            returning 1),
        {taken},
        logged as ({LOG} cross join taken),
        cleared as (delete from guesses where secret = %(secret)s and subject = %(subject)s and exists (select 1 from taken))
        select {ACCOUNT.columns}, exists (select 1 from taken) from locked u cross join redeemed"""


def redeem_parameters(first: mfa.FirstFactor) -> dict[str, object]:
    """Return the parameters for `redeem_sql`, without the parameters for `taken` and LOG."""
    return {
        "flow_id": first.flow_id,
        "browser_hash": first.browser_hash,
        "first_until": first.expires_at,
        "closed_ttl": CLOSED_TTL,
        "flow_ttl": FLOW_TTL,
        "secret": SecretKind.MFA,
        "subject": mfa.attempt_subject(first.user_id),
    }


def to_redeemed(row: statements.Row) -> mfa.RedeemedCode:
    return mfa.RedeemedCode(ACCOUNT.read(row), row[ACCOUNT.width])


def secret_context(user_id: UUID) -> crypto.SecretContext:
    return crypto.SecretContext("mfa", str(user_id), "secret")


def former_secret_context(row: UUID) -> crypto.SecretContext:
    return crypto.SecretContext("former_mfa", str(row), "secret")


def to_enrollment(vault: crypto.Vault, user_id: UUID, row: statements.Row) -> mfa.MfaEnrollment:
    """Return the enrollment from a row with the ENROLLMENT columns.

    Raises: SealBroken.
    """
    return mfa.MfaEnrollment(row[0] and vault.open(row[0], secret_context(user_id)).decode(), *row[1:])


def log_parameters(
    user_id: UUID, events: Sequence[mfa.MfaEvent], caller: Caller, now: datetime, reason: str | None = None
) -> dict[str, object]:
    """Return the parameters for LOG."""
    person = caller if isinstance(caller, Person) else None
    return {
        "user_id": user_id,
        "events": [event.value for event in events],
        "success": mfa.FAILURES.isdisjoint(events),
        "actor_id": person.user_id if person and person.user_id != user_id else None,
        "impersonator_id": person.impersonator_id if person else None,
        "reason": reason,
        "address": caller.address,
        "agent": caller.agent,
        "now": now,
    }


class MfaLog(statements.Repository):
    """Implements `ports.storage.accounts.security.MfaLog`."""

    __slots__ = ()

    async def log(self, user_id: UUID, events: Sequence[mfa.MfaEvent], caller: Caller, now: datetime, *, reason: str | None = None) -> None:
        sql = f"{LOG} cross join (select from users where id = %(user_id)s and anonymized_at is null for key share) as there"
        await self._write(sql, **log_parameters(user_id, events, caller, now, reason))


class Mfa(MfaLog, statements.SealingRepository):
    """Implements `ports.storage.accounts.security.Mfa`."""

    __slots__ = ()

    async def status(self, user_id: UUID) -> mfa.MfaStatus | None:
        return await self._one(lambda row: mfa.MfaStatus(*row), f"select {STATUS} from users u where u.id = %(user_id)s", user_id=user_id)

    async def enrollment(self, user_id: UUID) -> mfa.MfaEnrollment | None:
        sql = f"select {ENROLLMENT} from users u left join mfa m on m.user_id = u.id where u.id = %(user_id)s"
        return await self._one(lambda row: to_enrollment(self._vault, user_id, row), sql, user_id=user_id)

    async def newest_at(self, user_id: UUID, event: mfa.MfaEvent) -> datetime | None:
        sql = "select max(created_at) from mfa_events where user_id = %(user_id)s and event_type = %(event)s"
        return await self._one(lambda row: row[0], sql, user_id=user_id, event=event)

    async def switches(self, user_id: UUID, since: datetime) -> list[mfa.FactorSwitch]:
        sql = """
            select created_at, event_type from mfa_events
            where user_id = %(user_id)s and created_at >= %(since)s and event_type = any(%(on)s::text[] || %(off)s::text[])
            order by created_at desc, event_type = any(%(on)s::text[]) desc"""
        events = {"on": list(mfa.ENABLED.values()), "off": [*mfa.DISABLED.values(), *mfa.FORCE_DISABLED.values()]}
        return await self._all(lambda row: mfa.FactorSwitch(row[0], mfa.MfaEvent(row[1])), sql, user_id=user_id, since=since, **events)

    async def lifetimes(self, user_id: UUID, rp_id: str | None) -> list[mfa.FactorLifetime]:
        sql = """
            select false, mfa_enabled_at, null from users where id = %(user_id)s and mfa_enabled_at is not null
            union all select false, enabled_at, removed_at from former_mfa where user_id = %(user_id)s
            union all select true, created_at, null from passkeys where user_id = %(user_id)s and rp_id = %(rp_id)s
            union all select true, created_at, removed_at from former_passkeys where user_id = %(user_id)s and rp_id = %(rp_id)s"""
        return await self._all(lambda row: mfa.FactorLifetime(*row), sql, user_id=user_id, rp_id=rp_id)

    async def has_unused_code(self, user_id: UUID, code_hash: bytes) -> bool:
        sql = "select 1 from backup_codes where user_id = %(user_id)s and code_hash = %(code_hash)s and used_at is null"
        return await self._exists(sql, user_id=user_id, code_hash=code_hash)

    async def save_pending_secret(self, user_id: UUID, secret: str, now: datetime) -> None:
        sql = """
            insert into mfa (user_id, secret, setup_at) values (%(user_id)s, %(secret)s, %(now)s)
            on conflict (user_id) do update set
                secret = excluded.secret, setup_at = excluded.setup_at, last_step = null"""
        await self._run(sql, user_id=user_id, secret=self._vault.seal(secret.encode(), secret_context(user_id)), now=now)

    async def use_step(self, user_id: UUID, setup_at: datetime, step: int) -> bool:
        return await self._run(TAKE_STEP, user_id=user_id, setup_at=setup_at, step=step) == 1

    async def use_backup_code(self, user_id: UUID, code_hash: bytes, now: datetime) -> bool:
        return await self._run(USE_CODE, user_id=user_id, code_hash=code_hash, now=now) == 1

    async def retire(self, user_id: UUID, enabled_at: datetime, now: datetime) -> None:
        enrollment = await self.enrollment(user_id)
        if enrollment is None or enrollment.secret is None:
            return
        row = new_id()
        await self._run(
            """
            insert into former_mfa (id, user_id, secret, setup_at, enabled_at, last_step, removed_at)
            values (%(id)s, %(user_id)s, %(secret)s, %(setup_at)s, %(enabled_at)s, %(last_step)s, %(now)s)""",
            id=row,
            user_id=user_id,
            secret=self._vault.seal(enrollment.secret.encode(), former_secret_context(row)),
            setup_at=enrollment.setup_at,
            enabled_at=enabled_at,
            last_step=enrollment.last_step,
            now=now,
        )

    async def restore(self, user_id: UUID, since: datetime) -> datetime | None:
        # An account has only one second factor at a time, so at most one row was in use then.
        sql = """
            with gone as (delete from former_mfa where user_id = %(user_id)s and removed_at >= %(since)s returning *)
            select id, secret, setup_at, enabled_at, last_step from gone where enabled_at < %(since)s"""
        former = await self._one(lambda row: row, sql, user_id=user_id, since=since)
        if former is None:
            return None
        row, sealed, setup_at, enabled_at, last_step = former
        secret = self._vault.open(sealed, former_secret_context(row))
        sql = """
            insert into mfa (user_id, secret, setup_at, last_step) values (%(user_id)s, %(secret)s, %(setup_at)s, %(last_step)s)
            on conflict (user_id) do update set
                secret = excluded.secret, setup_at = excluded.setup_at, last_step = excluded.last_step"""
        await self._run(
            sql, user_id=user_id, secret=self._vault.seal(secret, secret_context(user_id)), setup_at=setup_at, last_step=last_step
        )
        return cast("datetime", enabled_at)

    async def remove_codes(self, user_id: UUID) -> None:
        await self._run("delete from backup_codes where user_id = %(user_id)s", user_id=user_id)

    def redeem_step(
        self, first: mfa.FirstFactor, setup_at: datetime, step: int, caller: Caller, now: datetime
    ) -> statements.Answer[mfa.RedeemedCode | None]:
        log = log_parameters(first.user_id, [mfa.MfaEvent.VERIFY_ATTEMPT, mfa.MfaEvent.VERIFY_SUCCESS], caller, now)
        return self._redeem(TAKE_STEP, first, log, setup_at=setup_at, step=step)

    def redeem_backup_code(
        self, first: mfa.FirstFactor, code_hash: bytes, caller: Caller, now: datetime
    ) -> statements.Answer[mfa.RedeemedCode | None]:
        log = log_parameters(
            first.user_id, [mfa.MfaEvent.VERIFY_ATTEMPT, mfa.MfaEvent.VERIFY_SUCCESS, mfa.MfaEvent.BACKUP_CODE_USED], caller, now
        )
        return self._redeem(USE_CODE, first, log, code_hash=code_hash)

    def _redeem(
        self, take: LiteralString, first: mfa.FirstFactor, log: dict[str, object], **code: object
    ) -> statements.Answer[mfa.RedeemedCode | None]:
        sql = redeem_sql(f"taken as ({take} and exists (select 1 from redeemed) returning 1)")
        return self._one(to_redeemed, sql, **redeem_parameters(first), **log, **code)

    async def replace_codes(self, user_id: UUID, salt: bytes, hashes: Sequence[bytes]) -> None:
        sql = """
            with salted as (update users set backup_codes_salt = %(salt)s where id = %(user_id)s),
            gone as (delete from backup_codes where user_id = %(user_id)s)
            insert into backup_codes (user_id, code_hash) select %(user_id)s, unnest(%(hashes)s::bytea[])"""
        await self._run(sql, user_id=user_id, salt=salt, hashes=list(hashes))

    async def remove(self, user_id: UUID, *, keeps_codes: bool = False) -> None:
        sql = """
            with codes as (delete from backup_codes where user_id = %(user_id)s and not %(keeps_codes)s)
            delete from mfa where user_id = %(user_id)s"""
        await self._run(sql, user_id=user_id, keeps_codes=keeps_codes)
