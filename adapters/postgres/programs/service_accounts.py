"""Service accounts in organizations and on the platform."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

from adapters.postgres.accounts.accounts import SERVICE_ACCOUNT_SUMMARY
from adapters.postgres.engine import records, statements
from adapters.postgres.kernel import roles
from adapters.postgres.kernel.roles import member_rights_array, rights_array, to_list
from core.accounts.model.accounts import AccountSummary
from core.kernel import callers, values
from core.kernel.api_scopes import ApiScope
from core.kernel.roles import (
    NO_RIGHTS,
    PLATFORM_RIGHTS,
    ROLES,
    Authority,
    Capability,
    Rights,
    RoleName,
    custom_role,
    find_role,
    known_rights,
)
from core.programs.model import service_accounts

# The built-in roles of an owner, and of an account that an owner may manage
PAIRS: Final = ", ".join(
    f"({to_list((owner.name, role.name))})"
    for owner in ROLES.values()
    for role in ROLES.values()
    if service_accounts.may_manage(owner.rights, role)
)
# The same for an owner `m` with roles through groups, or with roles that are not built in. Null, and so false, if a role is unknown.
MANAGES: Final = f"""
    {member_rights_array("m")} @> {rights_array("a")} and {member_rights_array("m")} @> array['{Capability.SERVICE_ACCOUNTS_MANAGE}']"""
HAS_POWER: Final = f"coalesce((m.role, a.role) in ({PAIRS}) or {MANAGES}, false)"
# The owner could create the account `a` now (`service_accounts.may_manage`).
OWNER_MAY_OWN: Final = f"""
    exists (
        select 1 from users u left join memberships m on m.org_id = a.org_id and m.user_id = u.id
        where u.id = a.owner_id and u.deactivated_at is null and u.anonymized_at is null
          and case when a.org_id is null then u.is_platform_owner else {HAS_POWER} end)"""
# The owner left or closed their own account, and the service account `a` goes on (security #own-end). If the owner is still a member, their
# role must allow to own `a`. An unknown role does not allow it.
GOES_ON: Final = f"""
    (a.ends_at is not null and not exists (
        select 1 from memberships m
        where m.org_id = a.org_id and m.user_id = a.owner_id and not {HAS_POWER}))"""
MAY_ACT: Final = f"({OWNER_MAY_OWN} or {GOES_ON})"  # also between the account's end and the next sweep
MAY_ACT_NOW: Final = f"({OWNER_MAY_OWN} or a.ends_at > %(now)s and {GOES_ON})"
# MAY_ACT_NOW as a join. A statement starts all its subqueries, so the statements for tokens name the owner's rights once.
JOIN_OWNER: Final = f"""
    left join lateral (
        select u.deactivated_at is null and u.anonymized_at is null
               and case when a.org_id is null then u.is_platform_owner else p.has_power end as may_own,
               a.ends_at is not null and coalesce(p.has_power, true) as goes_on
        from (values (a.owner_id)) o (id) left join users u on u.id = o.id
        left join lateral (
            select {HAS_POWER} as has_power from memberships m where m.org_id = a.org_id and m.user_id = a.owner_id offset 0) p on true
        offset 0) w on a.id is not null"""
JOINED_MAY_ACT_NOW: Final = "(w.may_own or a.ends_at > %(now)s and w.goes_on)"
# The rights by the account's role, and the rights that it kept when its owner left, or null. `to_account_rights` reads these columns.
OF_ROLE: Final = roles.own_rights_columns("a", "o")
RIGHTS: Final = f"{OF_ROLE.sql}, case when a.ends_at is not null then a.kept_rights end"
RIGHTS_WIDTH: Final = OF_ROLE.width + 1
SERVICE_ACCOUNT: Final = records.Record(
    service_accounts.ServiceAccount,
    "a",
    scopes=records.Column(read=lambda names: frozenset(map(ApiScope, names)), write=service_accounts.scopes_in_order),
    granted=records.Column(read=lambda names: frozenset(map(Capability, names)), write=service_accounts.in_declared_order),
)
INSERT: Final = SERVICE_ACCOUNT.insert("service_accounts")
CHANGES: Final = SERVICE_ACCOUNT.assignments(without=("id", "org_id", "created_by", "created_at"))
# The name and the capabilities, if the organization has defined the role
OWN_ROLE: Final = """
    (select g.name from organization_roles g where g.id = a.role_id),
    (select g.capabilities from organization_roles g where g.id = a.role_id)"""
# The owner's address is shown only while they are a member, or a platform owner.
LISTED: Final = f"{SERVICE_ACCOUNT.columns}, {OWN_ROLE}, w.email, {MAY_ACT_NOW}"
OF_LISTED: Final = """
    from service_accounts a
    left join lateral (
        select u.email from users u left join memberships m on m.org_id = a.org_id and m.user_id = u.id
        where u.id = a.owner_id and case when a.org_id is null then u.is_platform_owner else m.id is not null end) w on true"""
OF_ORG: Final = "a.org_id is not distinct from %(org_id)s"
CREDENTIAL_IS_LIVE: Final = "c.client_id = a.id and (c.expires_at is null or c.expires_at > %(now)s)"


def to_listed(row: statements.Row) -> service_accounts.ListedServiceAccount:
    account = SERVICE_ACCOUNT.read(row)
    label, capabilities, email, is_active = row[SERVICE_ACCOUNT.width :]
    role = find_role(account.role) if account.role is None or label is None else custom_role(account.role, label, capabilities)
    return service_accounts.ListedServiceAccount(account, role, None if email is None else values.Email(email), is_active)


def to_context(row: statements.Row) -> service_accounts.ServiceAccountContext:
    name, org_id, role, scopes, granted, id_, slug, status = row[:8]
    acts_in = None
    if id_ is not None:
        is_own = id_ == org_id
        rights = to_account_rights(row[8:]) if is_own else NO_RIGHTS
        acts_in = callers.MembershipState(id_, slug, callers.OrganizationStatus(status), role if is_own else None, rights)
    api_scopes = None if scopes is None else frozenset(map(ApiScope, scopes))
    return service_accounts.ServiceAccountContext(name, org_id, role, api_scopes, frozenset(map(Capability, granted)), acts_in)


def to_account_rights(row: statements.Row) -> Rights:
    """Return the rights in the RIGHTS columns. An account that goes on gets no further rights."""
    rights, kept = roles.to_rights(row[:-1]), row[-1]
    return rights if kept is None else rights & known_rights(kept)


class ServiceAccounts(statements.Repository):
    """Implements `ports.storage.programs.ServiceAccounts`."""

    async def page(self, org_id: UUID | None, page: values.Page, now: datetime) -> values.PageResult[service_accounts.ListedServiceAccount]:
        listed, order = f"{OF_LISTED} where {OF_ORG}", "a.created_at desc, a.id desc"
        return await self._counted_page(to_listed, LISTED, listed, order, page, org_id=org_id, now=now)

    async def by_id(self, org_id: UUID | None, account_id: UUID, now: datetime) -> service_accounts.ListedServiceAccount | None:
        sql = f"select {LISTED} {OF_LISTED} where {OF_ORG} and a.id = %(account_id)s"
        return await self._one(to_listed, sql, org_id=org_id, account_id=account_id, now=now)

    async def count(self, org_id: UUID | None) -> int:
        return await self._count(f"select count(*) from service_accounts a where {OF_ORG}", org_id=org_id)

    async def load_context(
        self, account_id: UUID, credential_id: UUID, slug: str | None, now: datetime
    ) -> service_accounts.ServiceAccountContext | None:
        sql = f"""
            select a.name, a.org_id, a.role, a.scopes, a.granted, o.id, o.slug, o.status, {RIGHTS}
            from service_accounts a
            join credentials c on c.id = %(credential_id)s and {CREDENTIAL_IS_LIVE}
            left join organizations o on o.slug = %(slug)s
            where a.id = %(account_id)s and {MAY_ACT_NOW}"""
        return await self._one(to_context, sql, account_id=account_id, credential_id=credential_id, slug=slug, now=now)

    async def summary(self, org_id: UUID, account_id: UUID) -> AccountSummary | None:
        sql = f"select {SERVICE_ACCOUNT_SUMMARY} from service_accounts a where a.org_id = %(org_id)s and a.id = %(account_id)s"
        return await self._one(lambda row: AccountSummary(str(row[0]), *row[1:]), sql, org_id=org_id, account_id=account_id)

    async def lock_live(self, org_id: UUID | None, account_id: UUID, credential_id: UUID) -> Authority | None:
        sql = f"""
            select {RIGHTS} from service_accounts a
            join credentials c on c.id = %(credential_id)s and c.client_id = a.id
            left join organizations o on o.id = a.org_id
            where a.id = %(account_id)s and a.org_id is not distinct from %(org_id)s and {MAY_ACT}
            for share of a, c"""

        def read(row: statements.Row) -> Authority:
            return Authority(row[0], PLATFORM_RIGHTS if row[0] is None else to_account_rights(row))

        return await self._one(read, sql, org_id=org_id, account_id=account_id, credential_id=credential_id)

    async def lock(self, org_id: UUID | None, account_id: UUID) -> service_accounts.ServiceAccount | None:
        sql = f"select {SERVICE_ACCOUNT.columns} from service_accounts a where {OF_ORG} and a.id = %(account_id)s for update"
        return await self._one(SERVICE_ACCOUNT.read, sql, org_id=org_id, account_id=account_id)

    async def with_role(self, org_id: UUID, role: RoleName) -> Sequence[tuple[UUID, Rights]]:
        sql = "select a.id, a.granted from service_accounts a where a.org_id = %(org_id)s and a.role = %(role)s order by a.id for update"
        return await self._all(lambda row: (row[0], frozenset(map(Capability, row[1]))), sql, org_id=org_id, role=role)

    async def set_role(self, org_id: UUID, account_id: UUID, role: RoleName, granted: Rights, now: datetime) -> None:
        sql = """
            update service_accounts set role = %(role)s, granted = %(granted)s, updated_at = %(now)s
            where org_id = %(org_id)s and id = %(account_id)s"""
        await self._run(sql, org_id=org_id, account_id=account_id, role=role, granted=service_accounts.in_declared_order(granted), now=now)

    async def inviting_above(self, org_id: UUID, role: RoleName) -> Sequence[UUID]:
        sql = f"""
            select distinct a.id from invitations i join service_accounts a on a.id = i.invited_by and a.org_id = i.org_id
            where i.org_id = %(org_id)s and i.role = %(role)s and i.status = 'pending'
              and not coalesce({rights_array("a")} @> {rights_array("i")}, false)
            order by a.id"""
        return await self._all(lambda row: row[0], sql, org_id=org_id, role=role)

    async def add(self, account: service_accounts.ServiceAccount) -> None:
        await self._run(INSERT, **SERVICE_ACCOUNT.values(account))

    async def save(self, account: service_accounts.ServiceAccount) -> None:
        await self._run(f"update service_accounts a set {CHANGES} where {OF_ORG} and a.id = %(id)s", **SERVICE_ACCOUNT.values(account))

    async def remove(self, org_id: UUID | None, account_id: UUID) -> None:
        sql = f"""
            with removed as (delete from service_accounts a where {OF_ORG} and a.id = %(account_id)s returning a.id)
            delete from credentials c using removed where c.client_id = removed.id"""
        await self._run(sql, org_id=org_id, account_id=account_id)

    async def stopped_of(self, org_id: UUID, owner_id: UUID, now: datetime) -> list[tuple[UUID, str]]:
        sql = f"""
            select a.id, a.name from service_accounts a
            where {OF_ORG} and a.owner_id = %(owner_id)s and not {MAY_ACT_NOW} order by a.id"""
        return await self._all(lambda row: (row[0], row[1]), sql, org_id=org_id, owner_id=owner_id, now=now)

    async def go_on(self, owner_id: UUID, org_id: UUID | None, until: datetime) -> list[tuple[UUID, UUID, str]]:
        # If the owner joined again, and leaves before the next sweep, the earlier end counts.
        sql = f"""
            update service_accounts a
            set ends_at = case when not {OWNER_MAY_OWN} then null when m.confirmed_at >= a.ends_at then a.ends_at else %(until)s end,
                kept_rights = {rights_array("a")}
            from memberships m
            where a.owner_id = %(owner_id)s and a.org_id = coalesce(%(org_id)s, a.org_id) and m.org_id = a.org_id and m.user_id = a.owner_id
            returning a.org_id, a.id, a.name, coalesce(a.ends_at = %(until)s, false)"""
        rows = await self._all(lambda row: row, sql, owner_id=owner_id, org_id=org_id, until=until)
        return sorted((row[0], row[1], row[2]) for row in rows if row[3])

    async def end_going_on(
        self, owner_id: UUID, org_id: UUID | None, now: datetime, account_id: UUID | None = None, *, within: Rights | None = None
    ) -> int:
        sql = """
            update service_accounts set ends_at = %(now)s
            where owner_id = %(owner_id)s and org_id = coalesce(%(org_id)s, org_id) and id = coalesce(%(account_id)s, id)
              and ends_at > %(now)s and coalesce(kept_rights <@ %(within)s::text[], true)"""
        rights = None if within is None else list(within)
        return await self._run(sql, owner_id=owner_id, org_id=org_id, account_id=account_id, now=now, within=rights)

    async def of_owner(self, owner_id: UUID, org_id: UUID | None) -> list[str]:
        sql = f"""
            select a.name from service_accounts a
            where a.owner_id = %(owner_id)s and a.org_id = coalesce(%(org_id)s, a.org_id) and {OWNER_MAY_OWN} order by a.name, a.id"""
        return await self._all(lambda row: str(row[0]), sql, owner_id=owner_id, org_id=org_id)

    async def goes_on(self, org_id: UUID, owner_id: UUID, now: datetime) -> bool:
        sql = "select 1 from service_accounts where org_id = %(org_id)s and owner_id = %(owner_id)s and ends_at > %(now)s limit 1"
        return await self._exists(sql, org_id=org_id, owner_id=owner_id, now=now)

    async def next_end(self, now: datetime) -> tuple[UUID, UUID] | None:
        sql = "select org_id, owner_id from service_accounts where ends_at <= %(now)s order by ends_at, id limit 1"
        return await self._one(lambda row: (row[0], row[1]), sql, now=now)

    async def forget_ends(self, org_id: UUID, owner_id: UUID, now: datetime) -> list[tuple[UUID, str]]:
        sql = f"""
            update service_accounts a set ends_at = null, kept_rights = null
            where a.org_id = %(org_id)s and a.owner_id = %(owner_id)s and a.ends_at <= %(now)s
            returning a.id, a.name, {OWNER_MAY_OWN}"""
        rows = await self._all(lambda row: row, sql, org_id=org_id, owner_id=owner_id, now=now)
        return sorted((row[0], row[1]) for row in rows if not row[2])

    async def givers(self, org_id: UUID, user_id: UUID) -> dict[UUID, UUID]:
        sql = """
            with recursive givers as (
                select a.id, a.owner_id from memberships m join service_accounts a on a.id = m.promoted_by
                where m.org_id = %(org_id)s and m.user_id = %(user_id)s
                union
                select a.id, a.owner_id from givers g
                join memberships m on m.org_id = %(org_id)s and m.user_id = g.owner_id
                join service_accounts a on a.id = m.promoted_by)
            select id, owner_id from givers"""
        return dict(await self._all(lambda row: (row[0], row[1]), sql, org_id=org_id, user_id=user_id))

    async def may_promote(self, org_id: UUID, account_id: UUID) -> bool | None:
        sql = f"""
            select {RIGHTS}, {MAY_ACT} from service_accounts a join organizations o on o.id = a.org_id
            where a.org_id = %(org_id)s and a.id = %(account_id)s"""
        return await self._one(
            lambda row: row[-1] and Capability.ROLES_MANAGE in to_account_rights(row[:-1]), sql, org_id=org_id, account_id=account_id
        )
