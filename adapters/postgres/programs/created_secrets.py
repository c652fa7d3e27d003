"""Secrets that remain when their creator is gone: a service account's API keys and SCIM tokens, and secrets to review."""

from collections.abc import Collection
from datetime import datetime
from typing import Final
from uuid import UUID

from adapters.postgres.accounts.accounts import ACCOUNT_IS_USABLE
from adapters.postgres.engine import statements
from adapters.postgres.kernel.roles import member_rights_array, rights_array, rights_columns, to_array
from adapters.postgres.programs.service_accounts import MAY_ACT, RIGHTS, to_account_rights
from core.accounts.model import email_queue
from core.applications.model.analytics import CredentialToReview
from core.applications.model.api_keys import NEEDED_RIGHTS
from core.kernel import roles
from core.kernel.roles import ADMIN, GRANTABLE, ROLES, Capability
from core.provisioning.model.directories import rights_used

OF_CREATOR: Final = "org_id = %(org_id)s and created_by = %(creator_id)s"
MEMBER_RIGHTS: Final = rights_columns("m", "o")
# The rights that a creator needs for an API key `secret`, and for a SCIM token
_OF_PERMISSIONS: Final = " ".join(f"when '{permission}' then {to_array(needed)}" for permission, needed in NEEDED_RIGHTS.items())
API_KEY_RIGHTS: Final = f"""
    (array['{Capability.API_KEYS_MANAGE}'] || array(
        select unnest(case p.name {_OF_PERMISSIONS} end) from unnest(secret.permissions) p (name)))"""
SCIM_TOKEN_RIGHTS: Final = f"""
    ({to_array(ROLES[ADMIN].rights)} || case when secret.directory_groups then array(
        select unnest({rights_array("g")}) from groups g
        where g.org_id = secret.org_id and g.scim_token_id is not null and g.role is not null and g.mapping_stopped_at is null) end)"""
# The grants that a service account needs to create a SCIM token: the directory uses these rights
SCIM_TOKEN_GRANTS: Final = f"""
    ({to_array(GRANTABLE.keys() & (rights_used(directory_groups=False) | {Capability.INTEGRATIONS_MANAGE}))}
     || case when secret.directory_groups then {to_array(GRANTABLE.keys() & rights_used(directory_groups=True))} end)"""
_GRANTABLE: Final = f"array(select unnest({API_KEY_RIGHTS}) intersect select unnest({to_array(GRANTABLE)}))"
REGISTRATION_TOKEN_RIGHTS: Final = to_array([Capability.SERVICES_CREATE])
# Neither a member nor a service account that works created the secret and could create it now.
TO_REVIEW: Final = f"""
    not exists (
        select 1 from memberships m join users u on u.id = m.user_id
        where m.org_id = %(org_id)s and m.user_id = s.created_by and u.deactivated_at is null and u.anonymized_at is null
          and {member_rights_array("m")} @> s.needed)
    and not exists (
        select 1 from service_accounts a
        where a.org_id = %(org_id)s and a.id = s.created_by and {MAY_ACT} and {rights_array("a")} @> s.needed
          and s.granted <@ a.granted)"""


def to_created_secret(row: statements.Row) -> email_queue.CreatedSecret:
    return email_queue.CreatedSecret(email_queue.NoticedSecret(row[0]), *row[1:5])


def _to_authority(row: statements.Row) -> roles.Authority:
    granted, *columns = row
    rights = to_account_rights(tuple(columns))
    return roles.Authority(columns[0], rights if granted is None else roles.lasting(rights, roles.known_rights(granted)))


class CreatedSecrets(statements.Repository):
    """Implements `ports.storage.programs.CreatedSecrets`."""

    async def of_creator(self, org_id: UUID, creator_id: UUID, now: datetime) -> list[email_queue.CreatedSecret]:
        sql = f"""
            select 'api_key', k.id, k.name, k.prefix, v.name, k.created_at
            from (select * from api_keys where {OF_CREATOR}) k join services v on v.id = k.service_id and v.org_id = k.org_id
            where k.expires_at is null or k.expires_at > %(now)s
            union all
            select 'scim_token', id, name, prefix, null, created_at from scim_tokens
            where {OF_CREATOR} and (expires_at is null or expires_at > %(now)s)
            order by 6, 2"""
        return await self._all(to_created_secret, sql, org_id=org_id, creator_id=creator_id, now=now)

    async def has_creator(self, org_id: UUID, creator_id: UUID) -> bool:
        # The audit log is kept forever, so it has deleted service accounts.
        sql = """
            select 1 where exists (select from service_accounts where org_id = %(org_id)s and id = %(creator_id)s)
                or exists (select from audit_log
                           where org_id = %(org_id)s and target_type = 'service_account' and target_id = %(target_id)s)"""
        return await self._exists(sql, org_id=org_id, creator_id=creator_id, target_id=str(creator_id))

    async def creator(self, org_id: UUID, secret_id: UUID) -> roles.Authority | None:
        sql = f"""
            with secret as (
                select created_by from api_keys where org_id = %(org_id)s and id = %(secret_id)s
                union all select created_by from scim_tokens where org_id = %(org_id)s and id = %(secret_id)s)
            select null, {MEMBER_RIGHTS.sql}, null from secret s
            join memberships m on m.org_id = %(org_id)s and m.user_id = s.created_by and m.confirmed_at is not null
            join users u on u.id = m.user_id and {ACCOUNT_IS_USABLE} join organizations o on o.id = m.org_id
            union all
            select a.granted, {RIGHTS} from secret s
            join service_accounts a on a.org_id = %(org_id)s and a.id = s.created_by and {MAY_ACT}
            join organizations o on o.id = a.org_id"""
        return await self._one(_to_authority, sql, org_id=org_id, secret_id=secret_id)

    async def to_review(
        self, org_id: UUID, kinds: Collection[email_queue.NoticedSecret], now: datetime, limit: int
    ) -> list[CredentialToReview]:
        sql = f"""
            select s.kind, s.id, s.name, s.created_by, s.application, s.slug from (
                select 'api_key' as kind, secret.id, secret.name, secret.created_by, v.name as application, v.slug,
                       secret.created_at, secret.expires_at, {API_KEY_RIGHTS} as needed, {_GRANTABLE} as granted
                from services v join api_keys secret on secret.service_id = v.id and secret.org_id = v.org_id where v.org_id = %(org_id)s
                union all
                select 'scim_token', secret.id, secret.name, secret.created_by, null, null, secret.created_at, secret.expires_at,
                       {SCIM_TOKEN_RIGHTS}, {SCIM_TOKEN_GRANTS}
                from scim_tokens secret where secret.org_id = %(org_id)s
                union all
                select 'registration_token', secret.id, secret.name, secret.created_by, null, null, secret.created_at, secret.expires_at,
                       {REGISTRATION_TOKEN_RIGHTS}, {REGISTRATION_TOKEN_RIGHTS}
                from registration_tokens secret where secret.org_id = %(org_id)s and secret.uses_left > 0) s
            where s.kind = any(%(kinds)s) and (s.expires_at is null or s.expires_at > %(now)s) and {TO_REVIEW}
            order by s.created_at, s.id limit %(limit)s"""
        values: dict[str, object] = {"org_id": org_id, "kinds": list(kinds), "now": now, "limit": limit}
        return await self._all(lambda row: CredentialToReview(email_queue.NoticedSecret(row[0]), *row[1:]), sql, **values)

    async def end(self, org_id: UUID, creator_id: UUID) -> list[email_queue.CreatedSecret]:
        sql = f"""
            with keys as (delete from api_keys where {OF_CREATOR} returning id, name, prefix, service_id),
            tokens as (delete from scim_tokens where {OF_CREATOR} returning id, name, prefix)
            select 'api_key', k.id, k.name, k.prefix, v.name from keys k join services v on v.id = k.service_id and v.org_id = %(org_id)s
            union all select 'scim_token', id, name, prefix, null from tokens"""
        return await self._all(to_created_secret, sql, org_id=org_id, creator_id=creator_id)
