"""The mail servers of organizations. Their passwords are stored encrypted."""

from datetime import datetime
from typing import Any, Final
from uuid import UUID

from adapters.postgres.engine.statements import Row, SealingRepository
from core.kernel.values import Email
from core.tenancy.model.settings import MailServer, SmtpSettings
from ports.crypto import SecretContext

# In the order that `_fields` expects.
COLUMNS: Final = "org_id, host, port, username, from_email, from_name, tls"


def secret_context(org_id: UUID) -> SecretContext:
    return SecretContext("smtp_settings", str(org_id), "password")


def _fields(row: Row) -> dict[str, Any]:
    return {
        "org_id": row[0],
        "host": row[1],
        "port": row[2],
        "username": row[3],
        "from_email": Email(row[4]),
        "from_name": row[5],
        "tls": row[6],
    }


def to_settings(row: Row) -> SmtpSettings:
    return SmtpSettings(**_fields(row))


class Smtp(SealingRepository):
    """Implements `ports.storage.tenancy.settings.Smtp`."""

    def _to_server(self, row: Row) -> MailServer:
        password = None if row[7] is None else self._vault.open(row[7], secret_context(row[0])).decode()
        return MailServer(**_fields(row), password=password)

    async def settings(self, org_id: UUID) -> SmtpSettings | None:
        return await self._one(to_settings, f"select {COLUMNS} from smtp_settings where org_id = %(org_id)s", org_id=org_id)

    async def server(self, org_id: UUID) -> MailServer | None:
        return await self._one(self._to_server, f"select {COLUMNS}, password from smtp_settings where org_id = %(org_id)s", org_id=org_id)

    async def put(self, server: MailServer, now: datetime) -> None:
        await self._run(
            """
            insert into smtp_settings (org_id, host, port, username, password, from_email, from_name, tls, updated_at)
            values (%(org_id)s, %(host)s, %(port)s, %(username)s, %(password)s, %(from_email)s, %(from_name)s, %(tls)s, %(now)s)
            on conflict (org_id) do update set
                host = excluded.host, port = excluded.port, username = excluded.username, password = excluded.password,
                from_email = excluded.from_email, from_name = excluded.from_name, tls = excluded.tls, updated_at = excluded.updated_at""",
            org_id=server.org_id,
            host=server.host,
            port=server.port,
            username=server.username,
            password=None if server.password is None else self._vault.seal(server.password.encode(), secret_context(server.org_id)),
            from_email=server.from_email,
            from_name=server.from_name,
            tls=server.tls,
            now=now,
        )

    async def remove(self, org_id: UUID) -> SmtpSettings | None:
        return await self._one(to_settings, f"delete from smtp_settings where org_id = %(org_id)s returning {COLUMNS}", org_id=org_id)
