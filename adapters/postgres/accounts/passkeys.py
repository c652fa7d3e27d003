"""The passkey repository."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import ClassVar, Final, LiteralString
from uuid import UUID

from adapters.postgres.accounts import mfa
from adapters.postgres.accounts.accounts import ACCOUNT
from adapters.postgres.engine import records, statements
from core.accounts.model import passkeys
from core.accounts.model.accounts import Account
from core.accounts.model.mfa import FirstFactor, MfaEvent, RedeemedCode
from core.accounts.model.security_notices import UNDO_TTL
from core.kernel.causes import Caller
from ports.signals import Signal

PASSKEY: Final = records.Record(passkeys.Passkey, "k", kind=passkeys.PasskeyKind, transports=tuple)
KNOWN: Final = records.Record(passkeys.KnownPasskey, "u", passkey=PASSKEY.as_field(), handle="u.passkey_handle")
# Almost all passkeys have this RP ID, so the query finds a passkey at once.
STORED_RP_ID: Final = "select i.rp_id from issuer i where exists (select from passkeys k where k.rp_id = i.rp_id)"
# For an account `u`. Without keys, no other table is read.
KEY_HOSTS: Final = records.Columns(
    f"""
    case when u.passkey_count > 0 then array(select k.rp_id from passkeys k where k.user_id = u.id and k.kind = 'passkey') end,
    case when u.security_key_count > 0 then array(select k.rp_id from passkeys k where k.user_id = u.id and k.kind = 'security_key') end,
    case when u.passkey_count + u.security_key_count > 0 then ({STORED_RP_ID}) end""",
    3,
    lambda row: to_key_hosts(row),
)
NAMES: Final = PASSKEY.columns.replace("k.", "")


def _count(sign: LiteralString, rows: LiteralString) -> LiteralString:
    """Return the statement that adds these rows to the account's counts, or subtracts them."""
    return f"""
        update users set passkey_count = passkey_count {sign} (select count(*) from {rows} where kind = 'passkey'),
                         security_key_count = security_key_count {sign} (select count(*) from {rows} where kind = 'security_key')
        where id = %(user_id)s"""


ADD: Final = f"with k as ({PASSKEY.insert('passkeys')} returning kind) {_count('+', 'k')}"
COUNT_DOWN: Final = _count("-", "gone")
# For a passkey `k` that signs in now. While the statement waits for a lock, another sign-in may count up. PostgreSQL then checks this
# condition again.
USE: Final = """
    update passkeys k set sign_count = greatest(k.sign_count, %(sign_count)s), backed_up = %(backed_up)s,
                          user_verified = k.user_verified or %(user_verified)s, last_used_at = %(now)s"""
COUNTS_UP: Final = "(k.backup_eligible or k.sign_count < %(sign_count)s or k.sign_count = 0 and %(sign_count)s = 0)"
CHALLENGE: Final = """
    insert into used_passkey_challenges select %(hash)s, %(challenge_until)s from used on conflict do nothing returning 1"""
REDEEM: Final = f"""
    with locked as (select {ACCOUNT.columns} from users u where u.id = %(user_id)s for no key update),
    used as ({USE} from locked where k.id = %(id)s and k.user_id = locked.id and {COUNTS_UP} returning 1),
    challenged as ({CHALLENGE})
    select u.*, exists (select from used), exists (select from challenged) from locked u"""
REDEEM_SECOND: Final = mfa.redeem_sql(f"""
    used as ({USE} from redeemed where k.id = %(id)s and k.user_id = %(user_id)s and {COUNTS_UP} returning 1),
    taken as ({CHALLENGE})""")


def _use_parameters(passkey: passkeys.Passkey, seen: passkeys.VerifiedAssertion, now: datetime) -> dict[str, object]:
    return {
        "id": passkey.id,
        "user_id": passkey.user_id,
        "sign_count": seen.sign_count,
        "backed_up": seen.backed_up,
        "user_verified": seen.user_verified,
        "hash": seen.challenge.hash,
        "challenge_until": seen.challenge.expires_at,
        "now": now,
    }


def to_key_hosts(row: statements.Row) -> passkeys.KeyHosts:
    return passkeys.KeyHosts(row[0] or (), row[1] or (), row[2])


class Passkeys(statements.Repository):
    """Implements `ports.storage.accounts.passkeys.Passkeys`."""

    constraints: ClassVar = {"passkeys_credential_key": passkeys.PasskeyTaken}

    async def of_user(self, user_id: UUID) -> list[passkeys.Passkey]:
        sql = f"select {PASSKEY.columns} from passkeys k where k.user_id = %(user_id)s order by k.created_at, k.id"
        return await self._all(PASSKEY.read, sql, user_id=user_id)

    async def by_id(self, user_id: UUID, passkey_id: UUID) -> passkeys.Passkey | None:
        sql = f"select {PASSKEY.columns} from passkeys k where k.user_id = %(user_id)s and k.id = %(id)s"
        return await self._one(PASSKEY.read, sql, user_id=user_id, id=passkey_id)

    async def by_credential(self, credential_id: bytes) -> passkeys.KnownPasskey | None:
        sql = f"""
            select {KNOWN.columns} from passkeys k join users u on u.id = k.user_id where k.credential_id = %(credential_id)s"""
        return await self._one(KNOWN.read, sql, credential_id=credential_id)

    async def handle_of(self, user_id: UUID) -> bytes | None:
        sql = "select passkey_handle from users where id = %(user_id)s and passkey_handle is not null"
        return await self._one(lambda row: bytes(row[0]), sql, user_id=user_id)

    async def restorable(self, user_id: UUID, rp_id: str) -> list[bytes]:
        sql = """
            select credential_id from former_passkeys
            where user_id = %(user_id)s and rp_id = %(rp_id)s order by removed_at desc"""
        return await self._all(lambda row: bytes(row[0]), sql, user_id=user_id, rp_id=rp_id)

    async def is_deleted(self, credential_id: bytes) -> bool:
        sql = "select 1 from former_passkeys where credential_id = %(credential_id)s limit 1"
        return await self._exists(sql, credential_id=credential_id)

    async def is_used(self, challenge: passkeys.UsedChallenge) -> bool:
        return await self._exists("select 1 from used_passkey_challenges where challenge_hash = %(hash)s", hash=challenge.hash)

    async def find_offerable(self, user_id: UUID, before: datetime) -> passkeys.KeyHosts | None:
        sql = f"""
            select {KEY_HOSTS.sql} from users u
            where u.id = %(user_id)s and u.email_verified_at is not null and u.recovery_required_at is null
              and (u.passkey_offered_at is null or u.passkey_offered_at <= %(before)s)"""
        return await self._one(to_key_hosts, sql, user_id=user_id, before=before)

    async def rp_id(self) -> str | None:
        return await self._one(lambda row: row[0], STORED_RP_ID)

    async def handle(self, user_id: UUID, proposed: bytes) -> bytes:
        sql = """
            update users set passkey_handle = coalesce(passkey_handle, %(proposed)s) where id = %(user_id)s
            returning passkey_handle"""
        return await self._one(lambda row: bytes(row[0]), sql, user_id=user_id, proposed=proposed) or proposed

    async def next_wait(self, now: datetime) -> Account | None:
        sql = f"""
            select {ACCOUNT.columns} from users u
            where u.passkey_wait_at <= %(unused)s or (u.passkey_wait_at <= %(over)s and not u.passkey_wait_announced)
            order by u.passkey_wait_at limit 1"""
        return await self._one(ACCOUNT.read, sql, unused=now - UNDO_TTL, over=now - passkeys.WAIT)

    async def users_by_rp_id(self, rp_id: str) -> Mapping[str, int]:
        sql = """
            select k.rp_id, count(distinct k.user_id) from passkeys k
            where k.rp_id = %(rp_id)s or not exists (select from passkeys o where o.user_id = k.user_id and o.rp_id = %(rp_id)s)
            group by k.rp_id order by k.rp_id"""
        return dict(await self._all(lambda row: (str(row[0]), int(row[1])), sql, rp_id=rp_id))

    async def lock_rp_id(self, url: str) -> None:
        sql = """
            with added as (insert into issuer (url) values (%(url)s) on conflict do nothing)
            select from issuer for update"""
        await self._run(sql, url=url)

    async def set_rp_id(self, rp_id: str) -> None:
        await self._run("update issuer set rp_id = %(rp_id)s", rp_id=rp_id)

    async def use_challenge(self, challenge: passkeys.UsedChallenge) -> bool:
        sql = "insert into used_passkey_challenges values (%(hash)s, %(expires_at)s) on conflict do nothing"
        return await self._run(sql, hash=challenge.hash, expires_at=challenge.expires_at) == 1

    def redeem(
        self, passkey: passkeys.Passkey, seen: passkeys.VerifiedAssertion, now: datetime
    ) -> statements.Answer[passkeys.RedeemedPasskey | None]:
        return self._one(
            lambda row: passkeys.RedeemedPasskey(ACCOUNT.read(row), *row[ACCOUNT.width :]), REDEEM, **_use_parameters(passkey, seen, now)
        )

    def redeem_second(
        self, first: FirstFactor, passkey: passkeys.Passkey, seen: passkeys.VerifiedAssertion, caller: Caller, now: datetime
    ) -> statements.Answer[RedeemedCode | None]:
        log = mfa.log_parameters(first.user_id, [MfaEvent.VERIFY_ATTEMPT, MfaEvent.VERIFY_SUCCESS, MfaEvent.PASSKEY_USED], caller, now)
        values = _use_parameters(passkey, seen, now) | log | mfa.redeem_parameters(first)
        return self._one(mfa.to_redeemed, REDEEM_SECOND, **values)

    async def set_second(self, user_id: UUID, since: datetime | None, now: datetime) -> None:
        sql = "update users set passkey_second_at = %(since)s, updated_at = %(now)s where id = %(user_id)s"
        await self._run(sql, user_id=user_id, since=since, now=now)
        self._signals.send(Signal.FIGURES_CHANGED)

    async def set_wait(self, user_id: UUID, at: datetime | None) -> None:
        sql = "update users set passkey_wait_at = %(at)s, passkey_wait_announced = false where id = %(user_id)s"
        await self._run(sql, user_id=user_id, at=at)

    async def announce_wait(self, user_id: UUID) -> bool:
        sql = "update users set passkey_wait_announced = true where id = %(user_id)s and not passkey_wait_announced"
        return await self._run(sql, user_id=user_id) == 1

    async def set_offered(self, user_id: UUID, now: datetime) -> None:
        await self._run("update users set passkey_offered_at = %(now)s where id = %(user_id)s", user_id=user_id, now=now)

    async def mark_refused(self, user_id: UUID, passkey_id: UUID, before: datetime, now: datetime) -> bool:
        sql = """
            update passkeys set refused_at = %(now)s
            where user_id = %(user_id)s and id = %(id)s and (refused_at is null or refused_at <= %(before)s)"""
        return await self._run(sql, user_id=user_id, id=passkey_id, before=before, now=now) == 1

    async def add(self, passkey: passkeys.Passkey) -> None:
        if await self.is_deleted(passkey.credential_id):
            raise passkeys.PasskeyTaken
        await self._run(ADD, **PASSKEY.values(passkey))

    async def rename(self, user_id: UUID, passkey_id: UUID, name: str) -> None:
        sql = "update passkeys set name = %(name)s where user_id = %(user_id)s and id = %(id)s"
        await self._run(sql, user_id=user_id, id=passkey_id, name=name)

    async def remove(self, user_id: UUID, passkey_id: UUID, now: datetime) -> bool:
        sql = f"""
            with gone as (delete from passkeys where user_id = %(user_id)s and id = %(id)s returning *),
            counted as ({COUNT_DOWN})
            insert into former_passkeys ({NAMES}, removed_at) select {NAMES}, %(now)s from gone"""
        return await self._run(sql, user_id=user_id, id=passkey_id, now=now) == 1

    async def end(self, user_id: UUID, passkey_id: UUID) -> None:
        sql = f"with gone as (delete from passkeys where user_id = %(user_id)s and id = %(id)s returning kind) {COUNT_DOWN}"
        await self._run(sql, user_id=user_id, id=passkey_id)

    async def turn_into_security_keys(self, user_id: UUID) -> None:
        sql = """
            with turned as (update passkeys set kind = 'security_key' where user_id = %(user_id)s and kind = 'passkey'),
            former as (delete from former_passkeys where user_id = %(user_id)s)
            update users set passkey_count = 0, security_key_count = passkey_count + security_key_count
            where id = %(user_id)s and passkey_count > 0"""
        await self._run(sql, user_id=user_id)

    async def remove_all(self, user_id: UUID) -> None:
        sql = """
            with gone as (delete from passkeys where user_id = %(user_id)s),
            former as (delete from former_passkeys where user_id = %(user_id)s)
            update users set passkey_count = 0, security_key_count = 0
            where id = %(user_id)s and passkey_count + security_key_count > 0"""
        await self._run(sql, user_id=user_id)

    async def remove_added_since(self, user_id: UUID, since: datetime) -> Sequence[UUID]:
        sql = f"""
            with gone as (delete from passkeys where user_id = %(user_id)s and created_at >= %(since)s returning id, kind),
            counted as ({COUNT_DOWN})
            select id from gone order by id"""
        return await self._all(lambda row: UUID(str(row[0])), sql, user_id=user_id, since=since)

    async def restore(self, user_id: UUID, since: datetime) -> Sequence[passkeys.Passkey]:
        # Another account may have registered the credential since.
        sql = f"""
            with former as (delete from former_passkeys where user_id = %(user_id)s and removed_at >= %(since)s returning *),
            k as (
                insert into passkeys ({NAMES}) select {NAMES} from former where created_at < %(since)s
                on conflict do nothing returning *),
            counted as ({_count("+", "k")})
            select {PASSKEY.columns} from k order by k.created_at, k.id"""
        return await self._all(PASSKEY.read, sql, user_id=user_id, since=since)
