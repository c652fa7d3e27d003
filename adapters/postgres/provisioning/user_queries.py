"""Queries for the users that an organization's directory knows."""

from typing import Final, LiteralString

from psycopg.types.json import Jsonb

from adapters.postgres.applications.service_access import is_blocked
from adapters.postgres.engine.records import Column, Columns, Record
from adapters.postgres.provisioning.filters import ACTIVE, CREATED, UPDATED, user_name
from core.accounts.model.profiles import NO_PROFILE, Profile
from core.kernel.values import Email
from core.provisioning.model.profiles import ScimProfile
from core.provisioning.model.users import ScimUser

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
SCIM_PROFILE: Final = Record(
    ScimProfile,
    "s",
    attributes=Columns("s.attributes", 1, lambda row: row[0] or {}, lambda attributes: {"attributes": Jsonb(dict(attributes))}),
)
PROFILE_IF_CONFIRMED: Final = ", ".join([f"case when k.confirmed then u.{name} end" for name in ("name", "picture", "locale", "zoneinfo")])
VALUES: Final = "(select x.attributes from attribute_values x where x.org_id = %(org_id)s and x.user_id = k.user_id)"
SCIM_USER: Final = Record(
    ScimUser,
    "u",
    email=Column(sql=ADDRESS, read=Email),
    user_name=user_name(ADDRESS),
    profile=SCIM_PROFILE.as_field(),
    active=ACTIVE,
    created_at=CREATED,
    updated_at=UPDATED,
    role="k.role",
    is_blocked="b.user_id is not null",
    is_anonymized="u.anonymized_at is not null",
    is_provisioned="coalesce(s.provisioned, false)",
    values=Columns(VALUES, 1, lambda row: row[0] or {}),
    account_profile=Columns(PROFILE_IF_CONFIRMED, 4, lambda row: Profile(*row) if any(row) else NO_PROFILE),
)
# Keep the lateral subqueries with `limit 1`: they look up a page's few users singly, whatever the
# planner expects.
PROFILE: Final = """
    select external_id, formatted, given_name, family_name, display_name, user_name, attributes, provisioned, updated_at
    from scim_users where org_id = %(org_id)s and user_id = k.user_id limit 1"""
ACCOUNT: Final = """
    select id, email, is_platform_owner, origin, origin_org_id, created_at, email_changed_at, deactivated_at, anonymized_at,
           name, picture, locale, zoneinfo, profile_changed_at
    from users where id = k.user_id limit 1"""
BLOCK: Final = "select user_id from directory_blocks where org_id = %(org_id)s and user_id = k.user_id limit 1"
PAGE_ROWS: Final = f"""
    select {SCIM_USER.columns}, k.joined_at as listed_at, k.membership_id as listed_id
    from page k cross join lateral ({ACCOUNT}) u left join lateral ({PROFILE}) s on true left join lateral ({BLOCK}) b on true"""
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
