"""Storage for reauthentications, for forms that wait for them, with sealed fields, and for the form keys of sent forms."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Final
from uuid import UUID

from adapters.postgres.engine import statements
from adapters.postgres.engine.records import Column, Record
from core.authentication.model import sessions
from core.kernel.connections import ConnectionSlug
from ports.crypto import SecretContext


def _to_json(fields: Mapping[str, str]) -> bytes:
    return json.dumps(dict(fields)).encode()


FORM: Final = Record(sessions.KeptForm, "f", fields=Column(read=json.loads, write=_to_json))  # stored sealed


def secret_context(form_id: UUID) -> SecretContext:
    return SecretContext("kept_forms", str(form_id), "fields")


class KeptForms(statements.SealingRepository):
    """Implements `ports.storage.authentication.sign_ins.KeptForms`."""

    def _to_kept_form(self, row: statements.Row) -> sessions.KeptForm:
        *before, sealed, created_at, expires_at = row
        return FORM.read((*before, self._vault.open(sealed, secret_context(row[0])), created_at, expires_at))

    async def find(self, session_id: UUID, form_id: UUID, now: datetime) -> sessions.KeptForm | None:
        sql = f"select {FORM.columns} from kept_forms f where id = %(id)s and session_id = %(session_id)s and expires_at > %(now)s"
        return await self._one(self._to_kept_form, sql, id=form_id, session_id=session_id, now=now)

    async def take(self, session_id: UUID, form_id: UUID, path: str, now: datetime) -> sessions.KeptForm | None:
        sql = f"""
            delete from kept_forms f
            where id = %(id)s and session_id = %(session_id)s and path = %(path)s and expires_at > %(now)s returning {FORM.columns}"""
        return await self._one(self._to_kept_form, sql, id=form_id, session_id=session_id, path=path, now=now)

    async def add(self, form: sessions.KeptForm, limit: int) -> bool:
        # In a separate statement: the next statement then sees the forms from requests that this statement waited for.
        sql = "select id from sessions where id = %(session_id)s and ended_at is null for no key update"
        session = await self._one(lambda row: row[0], sql, session_id=form.session_id)
        if session is None:
            return False
        sql = f"""
            with older as (
                select id from kept_forms where session_id = %(session_id)s order by created_at desc, id desc offset %(limit)s - 1),
            removed as (delete from kept_forms f using older where f.id = older.id)
            {FORM.insert("kept_forms")}"""
        sealed = self._vault.seal(_to_json(form.fields), secret_context(form.id))
        await self._run(sql, **FORM.values(form) | {"fields": sealed}, limit=limit)
        return True


class SentForms(statements.Repository):
    """Implements `ports.storage.authentication.sign_ins.SentForms`."""

    async def contains(self, form_hash: bytes) -> bool:
        return await self._exists("select 1 from sent_forms where form_hash = %(form_hash)s", form_hash=form_hash)

    async def add(self, form_hash: bytes, expires_at: datetime) -> bool:
        # This statement waits for a transaction with the same key, and then adds nothing, unless that transaction was
        # rolled back.
        sql = """
            insert into sent_forms (form_hash, expires_at) values (%(form_hash)s, %(expires_at)s)
            on conflict do nothing returning true"""
        return await self._one(lambda row: row[0], sql, form_hash=form_hash, expires_at=expires_at) is not None


CODE: Final = Record(sessions.EmailedCode, "r", salt="r.code_salt", expires_at="r.code_expires_at")
SAVE_CODE: Final = f"""
    {CODE.insert("reauthentications", "session_id")}
    on conflict (session_id) do update set {CODE.overwrites(without=())}, failures = 0"""


class Reauthentications(statements.Repository):
    """Implements `ports.storage.authentication.sign_ins.Reauthentications` and `ReauthenticationCodeAttempts`."""

    async def save_code(self, session_id: UUID, code: sessions.EmailedCode) -> None:
        await self._run(SAVE_CODE, **CODE.values(code), session_id=session_id)

    async def save_provider(self, session_id: UUID, provider: ConnectionSlug, now: datetime) -> None:
        sql = """
            insert into reauthentications (session_id, provider, provider_at) values (%(session_id)s, %(provider)s, %(now)s)
            on conflict (session_id) do update set provider = excluded.provider, provider_at = excluded.provider_at"""
        await self._run(sql, session_id=session_id, provider=provider, now=now)

    async def load(self, session_id: UUID) -> sessions.PendingReauthentication | None:
        sql = "select provider, provider_at from reauthentications where session_id = %(session_id)s and provider is not null"
        return await self._one(lambda row: sessions.PendingReauthentication(row[0], row[1]), sql, session_id=session_id)

    async def count_code_attempt(self, session_id: UUID, tries: int, now: datetime) -> sessions.EmailedCode | None:
        sql = f"""
            update reauthentications r set failures = failures + 1
            where session_id = %(session_id)s and failures < %(tries)s and code_expires_at > %(now)s
            returning {CODE.columns}"""
        return await self._one(CODE.read, sql, session_id=session_id, tries=tries, now=now)

    async def consume_code(self, session_id: UUID, code_hash: bytes, now: datetime) -> bool:
        sql = """
                update reauthentications set code_expires_at = %(now)s
                where session_id = %(session_id)s and code_hash = %(code_hash)s and code_expires_at > %(now)s"""
        return await self._run(sql, session_id=session_id, code_hash=code_hash, now=now) == 1

    async def remove(self, session_id: UUID) -> None:
        await self._run("delete from reauthentications where session_id = %(session_id)s", session_id=session_id)
