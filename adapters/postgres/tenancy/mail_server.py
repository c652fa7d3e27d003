"""The organizations' mail servers. Mail server passwords are stored encrypted."""

from dataclasses import fields
from datetime import datetime
from typing import Final
from uuid import UUID

from adapters.postgres.engine import statements
from adapters.postgres.engine.records import Record
from core.kernel.values import Email
from core.tenancy.model.settings import MailServer, SmtpSettings
from ports.crypto import SecretContext

SETTINGS: Final = Record(SmtpSettings, "s", from_email=Email)
PUT: Final = f"""
    {SETTINGS.insert("smtp_settings", "password", "updated_at")}
    on conflict (org_id) do update set
        {SETTINGS.overwrites(without=("org_id",))}, password = excluded.password, updated_at = excluded.updated_at"""


def secret_context(org_id: UUID) -> SecretContext:
    return SecretContext("smtp_settings", str(org_id), "password")


class Smtp(statements.SealingRepository):
    """Implements `ports.storage.tenancy.settings.Smtp`."""

    def _to_server(self, row: statements.Row) -> MailServer:
        settings, sealed = SETTINGS.read(row), row[SETTINGS.width]
        password = None if sealed is None else self._vault.open(sealed, secret_context(settings.org_id)).decode()
        return MailServer(**{field.name: getattr(settings, field.name) for field in fields(settings)}, password=password)

    async def settings(self, org_id: UUID) -> SmtpSettings | None:
        sql = f"select {SETTINGS.columns} from smtp_settings s where s.org_id = %(org_id)s"
        return await self._one(SETTINGS.read, sql, org_id=org_id)

    async def server(self, org_id: UUID) -> MailServer | None:
        sql = f"select {SETTINGS.columns}, s.password from smtp_settings s where s.org_id = %(org_id)s"
        return await self._one(self._to_server, sql, org_id=org_id)

    async def put(self, server: MailServer, now: datetime) -> None:
        password = None if server.password is None else self._vault.seal(server.password.encode(), secret_context(server.org_id))
        await self._run(PUT, **SETTINGS.values(server), password=password, updated_at=now)

    async def remove(self, org_id: UUID) -> SmtpSettings | None:
        sql = f"delete from smtp_settings s where s.org_id = %(org_id)s returning {SETTINGS.columns}"
        return await self._one(SETTINGS.read, sql, org_id=org_id)
