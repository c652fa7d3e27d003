"""An organization's branding, and its mail server with an encrypted password."""

from dataclasses import fields
from datetime import datetime
from typing import Final
from uuid import UUID

from adapters.postgres.engine import statements
from adapters.postgres.engine.records import Record
from core.accounts.model.email_queue import TokenPurpose
from core.kernel.values import Email
from core.tenancy.model.settings import BrandingSettings, Design, MailServer, SmtpSettings
from ports.crypto import SecretContext

MAIL_SETTINGS: Final = Record(SmtpSettings, "s", from_email=Email)
PUT_MAIL_SERVER: Final = f"""
    {MAIL_SETTINGS.insert("smtp_settings", "password", "updated_at")}
    on conflict (org_id) do update set
        {MAIL_SETTINGS.overwrites(without=("org_id",))}, password = excluded.password, updated_at = excluded.updated_at"""


def secret_context(org_id: UUID) -> SecretContext:
    return SecretContext("smtp_settings", str(org_id), "password")


class Smtp(statements.SealingRepository):
    """Implements `ports.storage.tenancy.settings.Smtp`."""

    def _to_server(self, row: statements.Row) -> MailServer:
        settings, sealed = MAIL_SETTINGS.read(row), row[MAIL_SETTINGS.width]
        password = None if sealed is None else self._vault.open(sealed, secret_context(settings.org_id)).decode()
        return MailServer(**{field.name: getattr(settings, field.name) for field in fields(settings)}, password=password)

    async def settings(self, org_id: UUID) -> SmtpSettings | None:
        sql = f"select {MAIL_SETTINGS.columns} from smtp_settings s where s.org_id = %(org_id)s"
        return await self._one(MAIL_SETTINGS.read, sql, org_id=org_id)

    async def server(self, org_id: UUID) -> MailServer | None:
        sql = f"select {MAIL_SETTINGS.columns}, s.password from smtp_settings s where s.org_id = %(org_id)s"
        return await self._one(self._to_server, sql, org_id=org_id)

    async def put(self, server: MailServer, now: datetime) -> None:
        password = None if server.password is None else self._vault.seal(server.password.encode(), secret_context(server.org_id))
        await self._run(PUT_MAIL_SERVER, **MAIL_SETTINGS.values(server), password=password, updated_at=now)

    async def remove(self, org_id: UUID) -> SmtpSettings | None:
        sql = f"delete from smtp_settings s where s.org_id = %(org_id)s returning {MAIL_SETTINGS.columns}"
        return await self._one(MAIL_SETTINGS.read, sql, org_id=org_id)


BRANDING: Final = Record(BrandingSettings, "b")
# An uploaded image goes when the logo changes.
PUT_BRANDING: Final = f"""
    with replaced as (
        delete from images i
        where i.org_id = %(org_id)s and i.owner_id = %(org_id)s and strpos(coalesce(%(logo_url)s, ''), i.key) = 0)
    {BRANDING.insert("branding", "org_id", "updated_at")}
    on conflict (org_id) do update set {BRANDING.overwrites(without=())}, updated_at = excluded.updated_at"""
# Only active organizations have a design.
OF_ACTIVE: Final = "left join branding b on b.org_id = o.id where o.status = 'active'"
DESIGN: Final = f"select o.name, {BRANDING.columns} from organizations o {OF_ACTIVE} and o.id = %(org_id)s"
ACTIVE_ID: Final = "select id from organizations where slug = %(slug)s and status = 'active'"


def to_design(row: statements.Row) -> Design:
    return Design(row[0], BRANDING.read(row[1:]))


class Branding(statements.Repository):
    """Implements `ports.storage.tenancy.settings.Branding`."""

    async def settings(self, org_id: UUID) -> BrandingSettings | None:
        return await self._one(BRANDING.read, f"select {BRANDING.columns} from branding b where b.org_id = %(org_id)s", org_id=org_id)

    async def active_org_id(self, slug: str) -> UUID | None:
        return await self._one(lambda row: row[0], ACTIVE_ID, slug=slug)

    async def keep_active_org(self, slug: str) -> UUID | None:
        return await self._one(lambda row: row[0], ACTIVE_ID + " for key share", slug=slug)

    def design(self, org_id: UUID) -> statements.Answer[Design | None]:
        return self._one(to_design, DESIGN, org_id=org_id)

    async def design_of_link(self, token_hash: bytes, purpose: TokenPurpose) -> Design | None:
        sql = f"""
            select o.name, {BRANDING.columns} from one_time_tokens k join organizations o on o.id = k.org_id {OF_ACTIVE}
            and k.purpose = %(purpose)s and k.token_hash = %(token_hash)s"""
        return await self._one(to_design, sql, purpose=purpose, token_hash=token_hash)

    async def put(self, org_id: UUID, settings: BrandingSettings, now: datetime) -> None:
        await self._run(PUT_BRANDING, **BRANDING.values(settings), org_id=org_id, updated_at=now)
