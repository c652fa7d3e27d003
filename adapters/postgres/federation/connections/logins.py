"""Sign-ins at the organizations' connections. The values for a sign-out there are encrypted."""

import json
from collections.abc import Mapping
from typing import Final, LiteralString
from uuid import UUID

from adapters.postgres.engine import statements
from adapters.postgres.engine.records import Column, Record
from core.federation.connections.model.logins import ConnectionLogin
from ports.crypto import SecretContext


def _to_json(logout: Mapping[str, str]) -> bytes:
    return json.dumps(dict(logout)).encode()


LOGIN: Final = Record(ConnectionLogin, "l", logout=Column(read=json.loads, write=_to_json))  # stored sealed
ADD: Final = LOGIN.insert("connection_logins")


def secret_context(row: UUID) -> SecretContext:
    return SecretContext("connection_logins", str(row), "logout")


class ConnectionLogins(statements.SealingRepository):
    """Implements `ports.storage.federation.connections.ConnectionLogins`."""

    def _to_login(self, row: statements.Row) -> ConnectionLogin:
        *before, sealed, created_at, ends_at = row
        return LOGIN.read((*before, self._vault.open(sealed, secret_context(row[0])), created_at, ends_at))

    async def find(self, org_id: UUID, id_: UUID, user_id: UUID) -> ConnectionLogin | None:
        sql = f"select {LOGIN.columns} from connection_logins l where l.org_id = %(org_id)s and l.id = %(id)s and l.user_id = %(user_id)s"
        return await self._one(self._to_login, sql, org_id=org_id, id=id_, user_id=user_id)

    async def newest_of_session(self, org_id: UUID, connection_id: UUID, provider_session: str) -> ConnectionLogin | None:
        return await self._newest("l.provider_session = %(value)s", org_id, connection_id, provider_session)

    async def newest_of_user(self, org_id: UUID, connection_id: UUID, user_id: UUID) -> ConnectionLogin | None:
        return await self._newest("l.user_id = %(value)s", org_id, connection_id, user_id)

    async def _newest(self, condition: LiteralString, org_id: UUID, connection_id: UUID, value: str | UUID) -> ConnectionLogin | None:
        sql = f"""
            select {LOGIN.columns} from connection_logins l
            where l.org_id = %(org_id)s and l.connection_id = %(connection_id)s and {condition}
            order by l.created_at desc limit 1"""
        return await self._one(self._to_login, sql, org_id=org_id, connection_id=connection_id, value=value)

    async def add(self, login: ConnectionLogin) -> None:
        sealed = self._vault.seal(_to_json(login.logout), secret_context(login.id))
        await self._write(ADD, **LOGIN.values(login) | {"logout": sealed})

    async def save_sign_out(self, org_id: UUID, id_: UUID, secret_hash: bytes, after: str) -> None:
        sql = """
            update connection_logins set sign_out_hash = %(secret_hash)s, sign_out_next = %(after)s
            where org_id = %(org_id)s and id = %(id)s"""
        await self._run(sql, org_id=org_id, id=id_, secret_hash=secret_hash, after=after)

    async def by_sign_out(self, secret_hash: bytes) -> ConnectionLogin | None:
        sql = f"select {LOGIN.columns} from connection_logins l where l.sign_out_hash = %(secret_hash)s"
        return await self._one(self._to_login, sql, secret_hash=secret_hash)

    async def finish_sign_out(self, connection_id: UUID, secret_hash: bytes) -> str | None:
        sql = """
            delete from connection_logins l where l.connection_id = %(connection_id)s and l.sign_out_hash = %(secret_hash)s
            returning l.sign_out_next"""
        return await self._one(lambda row: str(row[0]), sql, connection_id=connection_id, secret_hash=secret_hash)
