"""The repository of passkeys."""

from collections.abc import Sequence
from datetime import datetime
from typing import ClassVar, Final
from uuid import UUID

from adapters.postgres.engine.records import Record
from adapters.postgres.engine.statements import Repository
from core.accounts.model.passkeys import Passkey, PasskeyTaken, UsedChallenge

PASSKEY: Final = Record(Passkey, "k", transports=tuple)
NAMES: Final = PASSKEY.columns.replace("k.", "")
ADD: Final = f"""
    with counted as (update users set passkey_count = passkey_count + 1 where id = %(user_id)s)
    {PASSKEY.insert("passkeys")}"""
COUNT_DOWN: Final = "update users set passkey_count = passkey_count - (select count(*) from gone) where id = %(user_id)s"


class Passkeys(Repository):
    """Implements `ports.storage.accounts.passkeys.Passkeys`."""

    constraints: ClassVar = {"passkeys_credential_key": PasskeyTaken}

    async def of_user(self, user_id: UUID) -> list[Passkey]:
        sql = f"select {PASSKEY.columns} from passkeys k where k.user_id = %(user_id)s order by k.created_at, k.id"
        return await self._all(PASSKEY.read, sql, user_id=user_id)

    async def by_id(self, user_id: UUID, passkey_id: UUID) -> Passkey | None:
        sql = f"select {PASSKEY.columns} from passkeys k where k.user_id = %(user_id)s and k.id = %(id)s"
        return await self._one(PASSKEY.read, sql, user_id=user_id, id=passkey_id)

    async def rp_id(self) -> str | None:
        return await self._one(lambda row: row[0], "select rp_id from issuer")

    async def handle(self, user_id: UUID, proposed: bytes) -> bytes:
        sql = """
            update users set passkey_handle = coalesce(passkey_handle, %(proposed)s) where id = %(user_id)s
            returning passkey_handle"""
        return await self._one(lambda row: bytes(row[0]), sql, user_id=user_id, proposed=proposed) or proposed

    async def adopt_rp_id(self, rp_id: str, url: str) -> str:
        sql = """
            insert into issuer (url, rp_id) values (%(url)s, %(rp_id)s)
            on conflict (is_only) do update set rp_id = coalesce(issuer.rp_id, excluded.rp_id)
            returning rp_id"""
        return await self._one(lambda row: str(row[0]), sql, rp_id=rp_id, url=url) or rp_id

    async def use_challenge(self, challenge: UsedChallenge) -> bool:
        sql = "insert into used_passkey_challenges values (%(hash)s, %(expires_at)s) on conflict do nothing"
        return await self._run(sql, hash=challenge.hash, expires_at=challenge.expires_at) == 1

    async def add(self, passkey: Passkey) -> None:
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

    async def remove_all(self, user_id: UUID) -> None:
        sql = """
            with gone as (delete from passkeys where user_id = %(user_id)s),
            former as (delete from former_passkeys where user_id = %(user_id)s)
            update users set passkey_count = 0 where id = %(user_id)s and passkey_count > 0"""
        await self._run(sql, user_id=user_id)

    async def remove_added_since(self, user_id: UUID, since: datetime) -> Sequence[UUID]:
        sql = f"""
            with gone as (delete from passkeys where user_id = %(user_id)s and created_at >= %(since)s returning id),
            counted as ({COUNT_DOWN})
            select id from gone order by id"""
        return await self._all(lambda row: UUID(str(row[0])), sql, user_id=user_id, since=since)

    async def restore(self, user_id: UUID, since: datetime) -> Sequence[Passkey]:
        # Another account may have registered the credential since.
        sql = f"""
            with former as (delete from former_passkeys where user_id = %(user_id)s and removed_at >= %(since)s returning *),
            k as (
                insert into passkeys ({NAMES}) select {NAMES} from former where created_at < %(since)s
                on conflict do nothing returning *),
            counted as (update users set passkey_count = passkey_count + (select count(*) from k) where id = %(user_id)s)
            select {PASSKEY.columns} from k order by k.created_at, k.id"""
        return await self._all(PASSKEY.read, sql, user_id=user_id, since=since)
