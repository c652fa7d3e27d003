"""The users that an organization's directory knows, and the group."""

from collections.abc import Collection
from datetime import datetime
from typing import ClassVar, Final, LiteralString
from uuid import UUID

from psycopg.types.json import Jsonb

from adapters.postgres.accounts.accounts import ACCOUNT, INSERT, WITHOUT_DIRECTORY
from adapters.postgres.applications.service_access import is_blocked, may_use
from adapters.postgres.engine import records, statements
from adapters.postgres.kernel.roles import member_rights_array
from adapters.postgres.kernel.shared_sql import REGISTERED
from adapters.postgres.provisioning import filters
from adapters.postgres.provisioning.filters import user_name
from adapters.postgres.tenancy.members import FORGET, REMEMBER
from core.accounts.model import profiles
from core.accounts.model.accounts import Account
from core.kernel.roles import OWNER, Rights
from core.kernel.values import Email, PageResult, parse_id
from core.provisioning.model import users
from core.provisioning.model.directories import ScimTokenInvalid
from core.provisioning.model.filters import ScimFilter
from core.provisioning.model.groups import GroupMember
from core.provisioning.model.profiles import ScimProfile
from core.tenancy.model.organizations import Membership
from ports.signals import Signal


def to_group_member(row: statements.Row) -> GroupMember:
    return GroupMember(*row)


class ScimUsers(statements.Repository):
    """Implements the port ScimUsers."""

    constraints: ClassVar = {
        "users_email_key": users.UserNameTaken,
        "scim_users_user_name_key": users.UserNameTaken,
        # The organization was deleted, with its tokens, before it could be locked.
        "memberships_org_id_fkey": ScimTokenInvalid,
        "scim_users_org_id_fkey": ScimTokenInvalid,
    }

    async def page(self, org_id: UUID, filter_: ScimFilter | None, offset: int, limit: int) -> PageResult[users.ScimUser]:
        statement, values = PAGE, dict[str, object]()
        if filter_ is not None:
            of_members, values = filters.condition(filter_, "u.email")
            of_others, _ = filters.condition(filter_, "k.email")
            statement = filtered_page(of_members, of_others)
        return await self._page(SCIM_USER.read, statement, org_id=org_id, offset=offset, limit=limit, **values)

    async def by_id(self, org_id: UUID, user_id: UUID) -> users.ScimUser | None:
        return await self._one(SCIM_USER.read, BY_ID, org_id=org_id, user_id=user_id)

    async def groups(self, org_id: UUID, user_ids: Collection[UUID]) -> dict[UUID, list[users.GroupOfUser]]:
        sql = """
            select i.user_id, g.id, g.name from group_members i join groups g on g.id = i.group_id and g.org_id = i.org_id
            where i.org_id = %(org_id)s and i.user_id = any(%(user_ids)s) and g.scim_token_id is not null
            order by g.name_key"""
        groups: dict[UUID, list[users.GroupOfUser]] = {}
        for user_id, id_, name in await self._rows(sql, org_id=org_id, user_ids=list(user_ids)):
            groups.setdefault(user_id, []).append(users.GroupOfUser(id_, name))
        return groups

    async def group_ids(self, org_id: UUID, after: UUID | None, limit: int) -> list[UUID]:
        later = "" if after is None else "and user_id > %(after)s"
        sql = f"select user_id from memberships where org_id = %(org_id)s {later} order by user_id limit %(limit)s"
        return await self._all(lambda row: row[0], sql, org_id=org_id, after=after, limit=limit)

    async def group_members(self, org_id: UUID, user_ids: Collection[UUID]) -> list[GroupMember]:
        return await self._all(to_group_member, group_members_of("k.user_id = any(%(user_ids)s)"), org_id=org_id, user_ids=list(user_ids))

    async def all_group_members(self, org_id: UUID, after: UUID | None, limit: int) -> list[GroupMember]:
        later = "true" if after is None else "k.user_id > %(after)s"
        page = f"{group_members_of(f'{later} order by k.user_id limit %(limit)s')} order by k.user_id limit %(limit)s"
        return await self._all(to_group_member, page, org_id=org_id, after=after, limit=limit)

    async def group_external_ids(self, org_id: UUID) -> dict[UUID, str]:
        sql = """
            select id, scim_external_id from organizations where id = %(org_id)s and scim_external_id is not null
            union all
            select id, scim_external_id from services where org_id = %(org_id)s and scim_external_id is not null"""
        rows = await self._all(lambda row: (row[0], row[1]), sql, org_id=org_id)
        return dict(rows)

    async def save_group_external_id(self, org_id: UUID, group_id: UUID, external_id: str | None, now: datetime) -> None:
        sql = """
            with of_service as (
                update services set scim_external_id = %(external_id)s, updated_at = %(now)s
                where org_id = %(org_id)s and id = %(group_id)s)
            update organizations set scim_external_id = %(external_id)s, members_changed_at = %(now)s
            where id = %(org_id)s and id = %(group_id)s"""
        await self._run(sql, org_id=org_id, group_id=group_id, external_id=external_id, now=now)

    async def with_other_rights(self, org_id: UUID, user_ids: Collection[UUID], rights: Rights) -> set[UUID]:
        sql = f"""
            select m.user_id from memberships m
            where m.org_id = %(org_id)s and m.user_id = any(%(user_ids)s) and m.role <> '{OWNER}'
              and not {member_rights_array("m")} <@ %(rights)s"""
        return set(await self._all(lambda row: UUID(str(row[0])), sql, org_id=org_id, user_ids=list(user_ids), rights=sorted(rights)))

    async def platform_owners(self, user_ids: Collection[UUID]) -> set[UUID]:
        return set(
            await self._all(
                lambda row: UUID(str(row[0])),
                "select id from users where id = any(%(user_ids)s) and is_platform_owner",
                user_ids=list(user_ids),
            )
        )

    def welcome_context(self, org_id: UUID, email: Email, now: datetime) -> statements.Answer[users.WelcomeContext | None]:
        sql = f"""
            select o.name, a.name, a.id
            from organizations o cross join users u
            left join lateral (
                select min(v.name) as name, (array_agg(v.id))[1] as id
                from services v where v.org_id = o.id and {REGISTERED} and {may_use("v", "u.id")}
                having count(*) = 1) a on true
            where o.id = %(org_id)s and o.status = 'active' and u.email = %(email)s"""
        return self._one(lambda row: users.WelcomeContext(row[0], row[1], row[2]), sql, org_id=org_id, email=email, now=now)

    async def lock(self, org_id: UUID, user_ids: Collection[UUID]) -> None:
        sql = """
            with held as materialized (
                select user_id from memberships where org_id = %(org_id)s and user_id = any(%(user_ids)s)
                order by user_id for no key update)
            select 1 from users u, (select count(*) from held) before
            where u.id = any(%(user_ids)s) order by u.id for no key update of u"""
        await self._run(sql, org_id=org_id, user_ids=list(user_ids))

    def count_non_members(self, org_id: UUID) -> statements.Answer[int]:
        return self._count(f"select {NON_MEMBERS}", org_id=org_id)

    def claim_user_name(self, org_id: UUID, user_id: UUID, user_name: str) -> statements.Answer[bool]:
        # A user without a stored userName has the address as userName.
        sql = """
            with forgotten as (
                delete from scim_users
                where org_id = %(org_id)s and user_id <> %(user_id)s and membership_id is not null
                  and (lower(user_name) = lower(%(user_name)s) or user_name is null and email = lower(%(user_name)s)))
            select 1 from scim_users
            where org_id = %(org_id)s and lower(user_name) = lower(%(user_name)s) and user_id <> %(user_id)s and membership_id is null
            union all
            select 1 from users where id = %(as_id)s::uuid and id <> %(user_id)s  -- the id can be a userName (`filters.user_name`)
            union all
            select 1 from users u join memberships m on m.org_id = %(org_id)s and m.user_id = u.id
            left join scim_users s on s.org_id = %(org_id)s and s.user_id = u.id
            where u.email = lower(%(user_name)s) and u.id <> %(user_id)s and s.user_name is null
            limit 1"""
        return self._exists(sql, org_id=org_id, user_id=user_id, user_name=user_name, as_id=parse_id(user_name.lower()))

    async def provision(self, account: Account, membership: Membership, profile: ScimProfile) -> None:
        # A single statement, because the organization is locked: further requests by the directory
        # wait.
        added = await self._run(
            f"""
            with new_account as ({INSERT} returning users.id),
            joined as (
                insert into memberships (id, org_id, user_id, role, created_at, confirmed_at)
                select %(membership_id)s, %(org_id)s, id, %(role)s, %(created_at)s, %(confirmed_at)s from new_account
                returning org_id),
            counted as (
                update organizations o set member_count = member_count + 1, members_changed_at = %(created_at)s
                from joined where o.id = joined.org_id)
            insert into scim_users (org_id, user_id, external_id, formatted, given_name, family_name, display_name, user_name,
                                    attributes, provisioned, updated_at)
            select %(org_id)s, id, %(external_id)s, %(formatted)s, %(given_name)s, %(family_name)s, %(display_name)s, %(user_name)s,
                   %(attributes)s, true, %(created_at)s
            from new_account""",
            **ACCOUNT.values(account),
            membership_id=membership.id,
            org_id=membership.org_id,
            role=membership.role,
            confirmed_at=membership.confirmed_at,
            **SCIM_PROFILE.values(profile),
        )
        if added == 0:  # the address is reserved for its former account
            raise users.UserNameTaken
        self._signals.send(Signal.FIGURES_CHANGED)

    async def mark_provisioned(self, org_id: UUID, user_id: UUID, now: datetime) -> None:
        sql = """
            insert into scim_users as s (org_id, user_id, provisioned, membership_id, joined_at, email, updated_at)
            select %(org_id)s, u.id, true, case when m.id is null then gen_random_uuid() end,
                   case when m.id is null then %(now)s::timestamptz end, case when m.id is null then u.email end, %(now)s
            from users u left join memberships m on m.org_id = %(org_id)s and m.user_id = u.id
            where u.id = %(user_id)s
            on conflict (org_id, user_id) do update set
                provisioned = true, membership_id = coalesce(s.membership_id, excluded.membership_id),
                joined_at = coalesce(s.joined_at, excluded.joined_at), email = coalesce(s.email, excluded.email)"""
        await self._run(sql, org_id=org_id, user_id=user_id, now=now)

    async def save_profile(self, org_id: UUID, user_id: UUID, profile: ScimProfile, email: Email, now: datetime) -> None:
        sql = """
            insert into scim_users as s (org_id, user_id, external_id, formatted, given_name, family_name, display_name, user_name,
                                         attributes, provisioned, updated_at)
            values (%(org_id)s, %(user_id)s, %(external_id)s, %(formatted)s, %(given_name)s, %(family_name)s, %(display_name)s,
                    %(user_name)s, %(attributes)s, false, %(now)s)
            on conflict (org_id, user_id) do update set
                external_id = excluded.external_id, formatted = excluded.formatted, given_name = excluded.given_name,
                family_name = excluded.family_name, display_name = excluded.display_name,
                user_name = excluded.user_name, attributes = excluded.attributes, updated_at = excluded.updated_at,
                email = case when s.membership_id is not null then %(email)s end"""
        await self._run(sql, org_id=org_id, user_id=user_id, email=email, now=now, **SCIM_PROFILE.values(profile))

    async def forget_unprovisioned(self, org_id: UUID, user_id: UUID) -> None:
        sql = """
            delete from scim_users
            where org_id = %(org_id)s and user_id = %(user_id)s and membership_id is not null and not provisioned"""
        await self._run(sql, org_id=org_id, user_id=user_id)

    async def reopen_accounts(self, org_id: UUID, now: datetime) -> None:
        # Lock order: accounts by id, then service_users by (user_id, service_id). The path that
        # reopens a single account uses the same order.
        sql = """
            select u.id from users u
            where u.deactivated_at is not null and u.origin_org_id = %(org_id)s
              and u.id in (select user_id from directory_blocks where org_id = %(org_id)s)
            order by u.id for no key update"""
        account_ids = await self._all(lambda row: row[0], sql, org_id=org_id)
        if account_ids:
            sql = f"""
                with held as materialized (
                    select 1 from service_users where user_id = any(%(user_ids)s) order by user_id, service_id for no key update)
                update users set {WITHOUT_DIRECTORY}, updated_at = %(now)s
                from (select count(*) from held) before where id = any(%(user_ids)s)"""
            await self._run(sql, user_ids=account_ids, now=now)
            self._signals.send(Signal.FIGURES_CHANGED)

    async def restore_members(self, org_id: UUID, user_ids: Collection[UUID], now: datetime) -> None:
        sql = f"""
            with joining as (
                select u.id, s.membership_id, s.joined_at,
                       case when u.origin_org_id = %(org_id)s then %(now)s::timestamptz end as confirmed_at
                from users u left join scim_users s on s.org_id = %(org_id)s and s.user_id = u.id
                where u.id = any(%(user_ids)s) and u.anonymized_at is null and not {is_blocked("%(org_id)s", "u.id")}),
            added as (
                insert into memberships (id, org_id, user_id, role, created_at, confirmed_at)
                select coalesce(membership_id, gen_random_uuid()), %(org_id)s, id, 'member', coalesce(joined_at, %(now)s), confirmed_at
                from joining
                returning org_id, user_id),
            returned as ({FORGET} any(array(select user_id from added))),
            counted as (
                update organizations o set
                    member_count = member_count + (select count(*) from added)::int, members_changed_at = %(now)s
                where o.id = %(org_id)s)
            update scim_users s set membership_id = null, joined_at = null, email = null, updated_at = %(now)s
            from joining j where s.org_id = %(org_id)s and s.user_id = j.id"""
        await self._run(sql, org_id=org_id, user_ids=list(user_ids), now=now)

    async def remove_members(self, org_id: UUID, user_ids: Collection[UUID], now: datetime) -> None:
        sql = f"""
            with leaving as (
                delete from memberships where org_id = %(org_id)s and user_id = any(%(user_ids)s)
                returning *),
            remembered as ({REMEMBER}),
            counted as (
                update organizations o set
                    member_count = member_count - (select count(*) from leaving)::int, members_changed_at = %(now)s
                where o.id = %(org_id)s),
            remaining as (
                select l.user_id, l.id, l.created_at, u.email from leaving l join users u on u.id = l.user_id
                where {is_blocked("%(org_id)s", "l.user_id")} or exists (
                    select 1 from scim_users s where s.org_id = %(org_id)s and s.user_id = l.user_id and s.provisioned)),
            forgotten as (
                delete from scim_users s using leaving l
                where s.org_id = %(org_id)s and s.user_id = l.user_id and l.user_id not in (select user_id from remaining))
            insert into scim_users as s (org_id, user_id, provisioned, membership_id, joined_at, email, updated_at)
            select %(org_id)s, user_id, false, id, created_at, email, %(now)s from remaining
            on conflict (org_id, user_id) do update set
                membership_id = excluded.membership_id, joined_at = excluded.joined_at, email = excluded.email,
                updated_at = excluded.updated_at"""
        await self._run(sql, org_id=org_id, user_ids=list(user_ids), now=now)


# The users that a directory knows: the members, and users without a membership, who are blocked or
# were provisioned by the directory. Users without a membership are listed with the address that they
# had when they left.
MEMBERS: Final = """
    select m.user_id, m.created_at as joined_at, m.id as membership_id, m.role, null::text as email, m.confirmed_at is not null as confirmed
    from memberships m where m.org_id = %(org_id)s"""
OTHERS: Final = """
    select o.user_id, o.joined_at, o.membership_id, null::text as role, o.email, false as confirmed
    from scim_users o where o.org_id = %(org_id)s and o.membership_id is not null"""
FIELDS: Final = "k.user_id, k.joined_at, k.membership_id, k.role, k.email, k.confirmed"


def known(rest: LiteralString = "", of_others: LiteralString | None = None) -> LiteralString:
    """Return a subquery for all known users. `rest` is appended to its two parts.

    `of_others` replaces `rest` in the second part. The parts are joined by UNION ALL, so that every part can use its
    own index.
    """
    others = rest if of_others is None else of_others
    return f"((select {FIELDS} from ({MEMBERS}) k {rest}) union all (select {FIELDS} from ({OTHERS}) k {others}))"


ADDRESS: Final = "coalesce(k.email, u.email)"
SCIM_PROFILE: Final = records.Record(
    ScimProfile,
    "s",
    attributes=records.Columns("s.attributes", 1, lambda row: row[0] or {}, lambda attributes: {"attributes": Jsonb(dict(attributes))}),
)
PROFILE_IF_CONFIRMED: Final = ", ".join([f"case when k.confirmed then u.{name} end" for name in ("name", "picture", "locale", "zoneinfo")])
VALUES: Final = "(select x.attributes from attribute_values x where x.org_id = %(org_id)s and x.user_id = k.user_id)"
SCIM_USER: Final = records.Record(
    users.ScimUser,
    "u",
    email=records.Column(sql=ADDRESS, read=Email),
    user_name=user_name(ADDRESS),
    profile=SCIM_PROFILE.as_field(),
    active=filters.ACTIVE,
    created_at=filters.CREATED,
    updated_at=filters.UPDATED,
    role="k.role",
    is_blocked="b.user_id is not null",
    is_anonymized="u.anonymized_at is not null",
    is_provisioned="coalesce(s.provisioned, false)",
    values=records.Columns(VALUES, 1, lambda row: row[0] or {}),
    account_profile=records.Columns(PROFILE_IF_CONFIRMED, 4, lambda row: profiles.Profile(*row) if any(row) else profiles.NO_PROFILE),
)
# Keep the lateral subqueries with `limit 1`: they look up a page's few users singly, whatever the
# planner expects.
PROFILE: Final = """
    select external_id, formatted, given_name, family_name, display_name, user_name, attributes, provisioned, updated_at
    from scim_users where org_id = %(org_id)s and user_id = k.user_id limit 1"""
SCIM_ACCOUNT: Final = """
    select id, email, is_platform_owner, origin, origin_org_id, created_at, email_changed_at, deactivated_at, anonymized_at,
           name, picture, locale, zoneinfo, profile_changed_at
    from users where id = k.user_id limit 1"""
BLOCK: Final = "select user_id from directory_blocks where org_id = %(org_id)s and user_id = k.user_id limit 1"
PAGE_ROWS: Final = f"""
    select {SCIM_USER.columns}, k.joined_at as listed_at, k.membership_id as listed_id
    from page k cross join lateral ({SCIM_ACCOUNT}) u left join lateral ({PROFILE}) s on true left join lateral ({BLOCK}) b on true"""
JOINS: Final = """
    join users u on u.id = k.user_id left join scim_users s on s.org_id = %(org_id)s and s.user_id = k.user_id
    left join directory_blocks b on b.org_id = %(org_id)s and b.user_id = k.user_id"""
# How many users are known. Members have a counter; the remaining users are usually few and are
# counted.
NON_MEMBERS: Final = "(select count(*) from scim_users where org_id = %(org_id)s and membership_id is not null)"
TOTAL: Final = f"coalesce((select member_count from organizations where id = %(org_id)s), 0) + {NON_MEMBERS}"
ORDER: Final = "order by k.joined_at, k.membership_id"
FIRST_ROWS: Final = f"{ORDER} limit %(limit)s::bigint + %(offset)s::bigint"


def _page(source: LiteralString, total: LiteralString, before: LiteralString = "") -> LiteralString:
    return f"""
        with {before} page as (select {FIELDS} from {source} k {ORDER} limit %(limit)s offset %(offset)s)
        select counted.total, p.*
        from (select {total} as total) counted left join ({PAGE_ROWS}) p on true
        order by p.listed_at, p.listed_id"""


# Every part comes in index order, so that the union needs no sort.
PAGE: Final = _page(known(FIRST_ROWS), TOTAL)
BY_ID: Final = f"select {SCIM_USER.columns} from {known('where k.user_id = %(user_id)s')} k {JOINS}"


def filtered_page(of_members: LiteralString, of_others: LiteralString) -> LiteralString:
    # The matching users are materialized once, for the total and for the page.
    matching = known(f"{JOINS} where {of_members}", f"{JOINS} where {of_others}")
    return _page("matching", "(select count(*) from matching)", f"matching as materialized {matching},")


def group_members_of(predicate: LiteralString) -> LiteralString:
    # Anonymized users cannot return to the group. Keep the scalar subquery: for `exists`, the planner may read all users that the directory
    # knows, for every batch.
    is_usable = "(k.role is not null or (select a.anonymized_at is null from users a where a.id = k.user_id))"
    return f"""
        select k.user_id, k.role, {is_blocked("%(org_id)s", "k.user_id")}, u.is_platform_owner,
               coalesce((select s.provisioned from scim_users s where s.org_id = %(org_id)s and s.user_id = k.user_id), false),
               u.anonymized_at is not null
        from {known(f"where {is_usable} and {predicate}")} k
        cross join lateral (select is_platform_owner, anonymized_at from users where id = k.user_id limit 1) u"""
