"""The organizations' branding settings and designs."""

from datetime import datetime
from typing import Final
from uuid import UUID

from adapters.postgres.engine import statements
from adapters.postgres.engine.records import Record
from core.accounts.model.email_queue import TokenPurpose
from core.tenancy.model.settings import BrandingSettings, Design

SETTINGS: Final = Record(BrandingSettings, "b")
# An uploaded image goes when the logo changes.
PUT: Final = f"""
    with replaced as (
        delete from images i
        where i.org_id = %(org_id)s and i.owner_id = %(org_id)s and strpos(coalesce(%(logo_url)s, ''), i.key) = 0)
    {SETTINGS.insert("branding", "org_id", "updated_at")}
    on conflict (org_id) do update set {SETTINGS.overwrites(without=())}, updated_at = excluded.updated_at"""
# Only active organizations have a design.
OF_ACTIVE: Final = "left join branding b on b.org_id = o.id where o.status = 'active'"
DESIGN: Final = f"select o.name, {SETTINGS.columns} from organizations o {OF_ACTIVE} and o.id = %(org_id)s"
ACTIVE_ID: Final = "select id from organizations where slug = %(slug)s and status = 'active'"


def to_design(row: statements.Row) -> Design:
    return Design(row[0], SETTINGS.read(row[1:]))


class Branding(statements.Repository):
    """Implements `ports.storage.tenancy.settings.Branding`."""

    async def settings(self, org_id: UUID) -> BrandingSettings | None:
        return await self._one(SETTINGS.read, f"select {SETTINGS.columns} from branding b where b.org_id = %(org_id)s", org_id=org_id)

    async def active_org_id(self, slug: str) -> UUID | None:
        return await self._one(lambda row: row[0], ACTIVE_ID, slug=slug)

    async def keep_active_org(self, slug: str) -> UUID | None:
        return await self._one(lambda row: row[0], ACTIVE_ID + " for key share", slug=slug)

    def design(self, org_id: UUID) -> statements.Answer[Design | None]:
        return self._one(to_design, DESIGN, org_id=org_id)

    async def design_of_link(self, token_hash: bytes, purpose: TokenPurpose) -> Design | None:
        sql = f"""
            select o.name, {SETTINGS.columns} from one_time_tokens k join organizations o on o.id = k.org_id {OF_ACTIVE}
            and k.purpose = %(purpose)s and k.token_hash = %(token_hash)s"""
        return await self._one(to_design, sql, purpose=purpose, token_hash=token_hash)

    async def put(self, org_id: UUID, settings: BrandingSettings, now: datetime) -> None:
        await self._run(PUT, **SETTINGS.values(settings), org_id=org_id, updated_at=now)
