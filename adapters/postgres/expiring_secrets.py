"""Secrets that expire soon. The statements read all organizations' secrets."""

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Final, LiteralString

from adapters.postgres.accounts.accounts import ACCOUNT_IS_USABLE
from adapters.postgres.authentication.session_contexts import SESSION_NOT_ENDED
from adapters.postgres.engine.statements import Repository
from adapters.postgres.kernel.roles import member_rights_array, to_array
from adapters.postgres.programs import created_secrets
from adapters.postgres.programs.api_resources import is_active
from adapters.postgres.programs.created_secrets import API_KEY_RIGHTS
from adapters.postgres.programs.registration_tokens import creator_may_create
from adapters.postgres.programs.service_accounts import OWNER_MAY_OWN
from core.accounts.model.email_queue import NoticedSecret
from core.kernel.roles import Capability
from core.kernel.values import Email
from core.maintenance.model.housekeeping import ExpiringSecret

MAY_RECEIVE: Final = f"{ACCOUNT_IS_USABLE} and u.email_verified_at is not null"
IN_ACTIVE_ORGANIZATION: Final = "join organizations o on o.id = secret.org_id and o.status = 'active'"


def _member(condition: LiteralString) -> LiteralString:
    return f"""
        select u.email from memberships m join users u on u.id = m.user_id
        where m.org_id = secret.org_id and {condition} and {MAY_RECEIVE}"""


RESOURCE_RIGHTS: Final = to_array([Capability.RESOURCES_MANAGE])


def _manager(rights: LiteralString) -> LiteralString:
    """Return the join that has the address of the member who replaces the secret. `rights` are needed to create such a secret.

    The member is the user who created the secret, while they hold the rights, or else the organization's owner. A
    secret that a service account created goes to the owner, too. Keep the two subqueries: a single subquery with `or`
    would read all members.
    """
    holds = f"m.user_id = secret.created_by and {member_rights_array('m')} @> {rights}"
    return f"""
    {IN_ACTIVE_ORGANIZATION}
    cross join lateral (select coalesce(({_member(holds)}), ({_member("m.role = 'owner'")})) as address) recipient"""


def _claim(
    table: LiteralString,
    tables: LiteralString,
    condition: LiteralString,
    *,
    label: LiteralString,
    address: LiteralString,
    key: LiteralString = "id",
    holder: LiteralString = "null, null",
    organization: LiteralString = "o.name, o.slug",
) -> LiteralString:
    """Return the statement that claims a table's due secrets.

    `tables` joins the tables that the further arguments read. `condition` is true if the secret works now, and
    `address` is null if no user may receive the announcement. Locked rows are left for the next sweep.
    """
    return f"""
        with due (id, days, name, label, holder, holder_id, organization, org_slug, expires_at, address) as (
            select secret.{key}, nearest.days, secret.name, {label}, {holder}, {organization}, secret.expires_at, {address}
            from {table} secret {tables}
            cross join lateral (
                select min(each.days) as days from unnest(%(days)s::smallint[]) as each (days)
                where secret.expires_at <= %(now)s + each.days * interval '24 hours'
                  and secret.expires_at > secret.created_at + each.days * interval '24 hours') nearest
            where secret.expires_at > %(now)s and secret.expires_at <= %(until)s
              and nearest.days < coalesce(secret.announced, nearest.days + 1) and {address} is not null and {condition}
            order by secret.expires_at limit %(limit)s for update of secret skip locked)
        update {table} secret set announced = due.days from due where secret.{key} = due.id
        returning due.*"""


CLAIMS: Final[Mapping[NoticedSecret, LiteralString]] = {
    NoticedSecret.PERSONAL_TOKEN: _claim(
        "personal_tokens",
        """
            join sessions s on s.id = secret.session_id join users u on u.id = s.user_id
            left join organizations o on o.id = secret.org_id""",
        f"{SESSION_NOT_ENDED} and {MAY_RECEIVE} and (secret.org_id is null or o.status = 'active' and o.personal_tokens)",
        key="session_id",
        label="secret.prefix",
        address="u.email",
    ),
    NoticedSecret.API_KEY: _claim(
        "api_keys",
        f"join services v on v.id = secret.service_id {_manager(API_KEY_RIGHTS)}",
        "true",
        label="secret.prefix",
        holder="v.name, v.slug",
        address="recipient.address",
    ),
    NoticedSecret.SCIM_TOKEN: _claim(
        "scim_tokens", _manager(created_secrets.SCIM_TOKEN_RIGHTS), "true", label="secret.prefix", address="recipient.address"
    ),
    NoticedSecret.REGISTRATION_TOKEN: _claim(
        "registration_tokens",
        _manager(created_secrets.REGISTRATION_TOKEN_RIGHTS),
        f"secret.uses_left > 0 and {creator_may_create('secret')}",
        label="secret.prefix",
        address="recipient.address",
    ),
    NoticedSecret.SERVICE_ACCOUNT_CREDENTIAL: _claim(
        "credentials",
        """
            join service_accounts a on a.id = secret.client_id join users u on u.id = a.owner_id
            left join organizations o on o.id = secret.org_id""",
        f"(secret.org_id is null or o.status = 'active') and {OWNER_MAY_OWN} and {MAY_RECEIVE}",
        label="secret.hint",
        holder="a.name, a.id::text",
        address="u.email",
    ),
    NoticedSecret.API_RESOURCE_CREDENTIAL: _claim(
        "credentials",
        f"join api_resources r on r.id = secret.client_id {_manager(RESOURCE_RIGHTS)}",
        is_active("r"),
        label="secret.hint",
        holder="r.name, r.id::text",
        address="recipient.address",
    ),
}


class ExpiringSecrets(Repository):
    """Implements `ports.storage.maintenance.ExpiringSecrets`."""

    async def claim(self, kind: NoticedSecret, days: Collection[int], now: datetime, limit: int) -> list[ExpiringSecret]:
        return await self._all(
            lambda row: ExpiringSecret(kind, Email(row[9]), *row[2:9]),
            CLAIMS[kind],
            days=list(days),
            now=now,
            until=now + timedelta(days=max(days)),
            limit=limit,
        )
