"""Registration tokens of organizations."""

from datetime import datetime
from typing import Final
from uuid import UUID

from adapters.postgres.accounts.accounts import ACCOUNT_IS_USABLE
from adapters.postgres.engine.records import Column, Record
from adapters.postgres.engine.statements import Repository
from adapters.postgres.kernel.roles import member_rights_array, rights_array, to_array
from adapters.postgres.programs.service_accounts import OWNER_MAY_OWN
from core.kernel.callers import OrganizationStatus
from core.kernel.roles import Capability
from core.programs.model.registration_tokens import RegistrationToken, RegistrationTokenRecord

TOKEN: Final = Record(RegistrationToken, "t")
INSERT: Final = TOKEN.insert("registration_tokens", "token_hash")
_NEEDED: Final = to_array([Capability.SERVICES_CREATE])
# The creator of the token `t` may create applications now: a member, or a service account with the grant of an owner.
IS_LIVE: Final = f"""
    t.uses_left > 0 and (t.expires_at is null or t.expires_at > %(now)s)
    and (exists (
            select 1 from memberships m join users u on u.id = m.user_id and {ACCOUNT_IS_USABLE}
            where m.org_id = t.org_id and m.user_id = t.created_by and m.confirmed_at is not null
              and {member_rights_array("m")} @> {_NEEDED})
         or exists (
            select 1 from service_accounts a
            where a.org_id = t.org_id and a.id = t.created_by and {OWNER_MAY_OWN} and {rights_array("a")} @> {_NEEDED}
              and a.granted @> {_NEEDED}))"""
TOKEN_RECORD: Final = Record(
    RegistrationTokenRecord, "t", token=TOKEN.as_field(), status=Column(sql="o.status", read=OrganizationStatus), is_live=IS_LIVE
)


class RegistrationTokens(Repository):
    """Implements `ports.storage.programs.RegistrationTokens`."""

    async def by_hash(self, token_hash: bytes, now: datetime) -> RegistrationTokenRecord | None:
        sql = f"""
            select {TOKEN_RECORD.columns} from registration_tokens t join organizations o on o.id = t.org_id
            where t.token_hash = %(token_hash)s"""
        return await self._one(TOKEN_RECORD.read, sql, token_hash=token_hash, now=now)

    async def of_org(self, org_id: UUID) -> list[RegistrationToken]:
        sql = f"select {TOKEN.columns} from registration_tokens t where t.org_id = %(org_id)s order by t.created_at, t.id"
        return await self._all(TOKEN.read, sql, org_id=org_id)

    async def by_id(self, org_id: UUID, token_id: UUID) -> RegistrationToken | None:
        sql = f"select {TOKEN.columns} from registration_tokens t where t.org_id = %(org_id)s and t.id = %(token_id)s"
        return await self._one(TOKEN.read, sql, org_id=org_id, token_id=token_id)

    async def add(self, token: RegistrationToken, token_hash: bytes) -> None:
        await self._run(INSERT, **TOKEN.values(token), token_hash=token_hash)

    async def use(self, org_id: UUID, token_id: UUID, now: datetime) -> bool:
        sql = f"""
            update registration_tokens t set uses_left = t.uses_left - 1, last_used_at = %(now)s
            where t.org_id = %(org_id)s and t.id = %(token_id)s and {IS_LIVE}"""
        return await self._run(sql, org_id=org_id, token_id=token_id, now=now) == 1

    async def remove(self, org_id: UUID, token_id: UUID) -> None:
        await self._run("delete from registration_tokens where org_id = %(org_id)s and id = %(token_id)s", org_id=org_id, token_id=token_id)
