"""The organizations' registration tokens."""

from datetime import datetime
from typing import Final, LiteralString
from uuid import UUID

from adapters.postgres.accounts.accounts import ACCOUNT_IS_USABLE
from adapters.postgres.engine import records
from adapters.postgres.kernel.organization_tokens import OrganizationTokens
from adapters.postgres.kernel.roles import member_rights_array, rights_array
from adapters.postgres.programs.created_secrets import REGISTRATION_TOKEN_RIGHTS
from adapters.postgres.programs.service_accounts import MAY_ACT
from core.kernel.callers import OrganizationStatus
from core.programs.model import registration_tokens

TOKEN: Final = records.Record(registration_tokens.RegistrationToken, "t")


def creator_may_create(token: LiteralString) -> LiteralString:
    """Return whether a token's creator may create applications now: a member, or a service account with an owner's grant."""
    return f"""
    (exists (
        select 1 from memberships m join users u on u.id = m.user_id and {ACCOUNT_IS_USABLE}
        where m.org_id = {token}.org_id and m.user_id = {token}.created_by and m.confirmed_at is not null
          and {member_rights_array("m")} @> {REGISTRATION_TOKEN_RIGHTS})
     or exists (
        select 1 from service_accounts a
        where a.org_id = {token}.org_id and a.id = {token}.created_by and {MAY_ACT}
          and {rights_array("a")} @> {REGISTRATION_TOKEN_RIGHTS} and a.granted @> {REGISTRATION_TOKEN_RIGHTS}))"""


IS_LIVE: Final = f"t.uses_left > 0 and (t.expires_at is null or t.expires_at > %(now)s) and {creator_may_create('t')}"
TOKEN_RECORD: Final = records.Record(
    registration_tokens.RegistrationTokenRecord, "t", token=TOKEN.as_field(), status=records.Column(sql="o.status", read=OrganizationStatus)
)


class RegistrationTokens(OrganizationTokens[registration_tokens.RegistrationToken]):
    """Implements `ports.storage.programs.RegistrationTokens`."""

    table, record = "registration_tokens", TOKEN

    async def by_hash(self, token_hash: bytes, now: datetime) -> registration_tokens.RegistrationTokenRecord | None:
        sql = f"""
            select {TOKEN_RECORD.columns} from registration_tokens t join organizations o on o.id = t.org_id
            where t.token_hash = %(token_hash)s and {IS_LIVE}"""
        return await self._one(TOKEN_RECORD.read, sql, token_hash=token_hash, now=now)

    async def use(self, org_id: UUID, token_id: UUID, now: datetime) -> bool:
        sql = f"""
            update registration_tokens t set uses_left = t.uses_left - 1, last_used_at = %(now)s
            where t.org_id = %(org_id)s and t.id = %(token_id)s and {IS_LIVE}"""
        return await self._run(sql, org_id=org_id, token_id=token_id, now=now) == 1
