"""Names for audit logs: for the objects in entries, and objects found by a text in their address or name."""

from collections.abc import Collection, Mapping
from typing import Final, LiteralString

from adapters.postgres.applications.services import LOGGED_NAME
from adapters.postgres.engine.statements import Row
from core.eventing.model import sentences
from core.eventing.model.audit import ObjectKey
from core.kernel.event_catalog import Target

# Every part has the columns type, id, name, and the user's own name. A member's own name is shown after the membership is confirmed
# (security R-9). An organization sees the addresses of its members, its applications' users, and users that its directory knows. For former
# members, it sees the address and name that they had when they left.
_OF_ORGANIZATION: Final[Mapping[str, LiteralString]] = {
    Target.USER: """
        select 'user', u.id::text, case when m.id is null and e.user_id is null then coalesce(f.email, s.email, u.email) else u.email end,
               case when m.confirmed_at is not null then u.name when m.id is null then f.name end
        from unnest(%(user)s::uuid[]) as named (id)
        cross join lateral (select id, email, name from users where id = named.id limit 1) u
        left join memberships m on m.org_id = %(org_id)s and m.user_id = u.id
        left join end_users e on e.org_id = %(org_id)s and e.user_id = u.id
        left join scim_users s on s.org_id = %(org_id)s and s.user_id = u.id
        left join former_members f on f.org_id = %(org_id)s and f.user_id = u.id
        where m.id is not null or e.user_id is not null or s.user_id is not null or f.user_id is not null""",
    Target.ORGANIZATION: """
        select 'organization', id::text, name, null from organizations where id = %(org_id)s and id = any(%(organization)s)""",
    Target.SERVICE: f"""
        select 'service', v.id::text, {LOGGED_NAME}, null from services v where v.org_id = %(org_id)s and v.id = any(%(service)s)""",
    Target.PLAN: "select 'plan', id::text, name, null from plans where org_id = %(org_id)s and id = any(%(plan)s)",
    Target.API_KEY: "select 'api_key', id::text, name, null from api_keys where org_id = %(org_id)s and id = any(%(api_key)s)",
    Target.API_RESOURCE: """
        select 'api_resource', id::text, name, null from api_resources where org_id = %(org_id)s and id = any(%(api_resource)s)""",
    Target.GROUP: "select 'group', id::text, name, null from groups where org_id = %(org_id)s and id = any(%(group)s)",
    Target.SERVICE_ACCOUNT: """
        select 'service_account', id::text, name, null from service_accounts where org_id = %(org_id)s and id = any(%(service_account)s)""",
    Target.ROLE: "select 'role', id::text, name, null from organization_roles where org_id = %(org_id)s and id = any(%(role)s)",
    sentences.SCIM_TOKEN: """
        select 'scim_token', id::text, name, null from scim_tokens where org_id = %(org_id)s and id = any(%(scim_token)s)""",
    sentences.REGISTRATION_TOKEN: """
        select 'registration_token', id::text, name, null from registration_tokens
        where org_id = %(org_id)s and id = any(%(registration_token)s)""",
}
# Platform owners see all accounts and organizations. The platform's log is about nothing else that has a name.
_OF_PLATFORM: Final[Mapping[str, LiteralString]] = {
    Target.USER: "select 'user', id::text, email, name from users where id = any(%(user)s)",
    Target.ORGANIZATION: "select 'organization', id::text, name, null from organizations where id = any(%(organization)s)",
    Target.SERVICE: f"select 'service', v.id::text, {LOGGED_NAME}, null from services v where v.id = any(%(service)s)",
    Target.SERVICE_ACCOUNT: """
        select 'service_account', id::text, name, null from service_accounts where org_id is null and id = any(%(service_account)s)""",
}
# Keep the bytewise operators: only they use the indexes that find how a text begins, whatever the database's order is.
_NAME_STARTS: Final = "lower(name) ~>=~ %(text)s and lower(name) ~<~ %(text_end)s"
_LAST_NAME_STARTS: Final = """
    lower(substring(name from '[^ ]+$')) ~>=~ %(text)s and lower(substring(name from '[^ ]+$')) ~<~ %(text_end)s"""
_NAMED: Final = f"select id from users where {_NAME_STARTS} union all select id from users where {_LAST_NAME_STARTS}"
# The names of few members are read. With many members, the installation's accounts with such a name are read instead: a name that is
# frequent there is soon frequent among so many members, and ends the search.
_MEMBER_COUNT: Final = "(select member_count from organizations where id = %(org_id)s)"
FEW_MEMBERS: Final = 2000
HAS_MANY_MEMBERS: Final = f"{_MEMBER_COUNT} > {FEW_MEMBERS}"
MOST_NAMED: Final = 5000  # accounts with such a name that are read; more of them end the search
# Members are found by a part of their address: a search reads an organization's addresses from an index. There can be any number of
# application users, so they are found by the beginning, and past invitations, former members
# and directory users by the whole address.
FIND_IN_ORGANIZATION: Final = f"""
    with named as materialized (
        (select id from users where {_NAME_STARTS} limit {MOST_NAMED})
        union all
        (select id from users where {_LAST_NAME_STARTS} limit {MOST_NAMED}))
    select distinct type, id from (
        (select 'user' as type, m.user_id::text as id
         from (select id from memberships where org_id = %(org_id)s and strpos(email, %(text)s) > 0 limit %(limit)s) matching
         cross join lateral (select user_id from memberships where id = matching.id and org_id = %(org_id)s limit 1) m)
        union all
        (select 'user', m.user_id::text from memberships m
         cross join lateral (select name from users where id = m.user_id limit 1) u
         where {_MEMBER_COUNT} <= {FEW_MEMBERS} and m.org_id = %(org_id)s and m.confirmed_at is not null
           and ({_NAME_STARTS} or {_LAST_NAME_STARTS}) limit %(limit)s)
        union all
        (select 'user', m.user_id::text from named
         cross join lateral (
             select user_id from memberships
             where org_id = %(org_id)s and user_id = named.id and confirmed_at is not null limit 1) m
         where {HAS_MANY_MEMBERS} limit %(limit)s)
        union all
        -- as many rows as end the search
        (select 'unknown', number::text from generate_series(1, %(limit)s) number
         where case when {HAS_MANY_MEMBERS} then (select count(*) from named) >= {MOST_NAMED} else false end)
        union all
        (select 'user', user_id::text from end_users
         where org_id = %(org_id)s and email ~>=~ %(text)s and email ~<~ %(text_end)s order by email using ~<~ limit %(limit)s)
        union all
        (select 'user', s.user_id::text from users u
         cross join lateral (select user_id from scim_users where org_id = %(org_id)s and user_id = u.id and email is null limit 1) s
         where u.email = %(text)s)
        union all
        (select 'user', user_id::text from scim_users where org_id = %(org_id)s and email = %(text)s limit %(limit)s)
        union all
        (select 'user', user_id::text from former_members where org_id = %(org_id)s and email = %(text)s limit %(limit)s)
        union all
        (select 'invitation', id::text from invitations where org_id = %(org_id)s and email = %(text)s limit %(limit)s)
        union all
        (select 'service', id::text from services
         where org_id = %(org_id)s and (strpos(lower(name), %(text)s) > 0 or strpos(slug, %(text)s) > 0) limit %(limit)s)
        union all
        (select 'plan', id::text from plans where org_id = %(org_id)s and strpos(lower(name), %(text)s) > 0 limit %(limit)s)
        union all
        (select 'api_key', id::text from api_keys where org_id = %(org_id)s and strpos(lower(name), %(text)s) > 0 limit %(limit)s)
        union all
        (select 'api_resource', id::text from api_resources
         where org_id = %(org_id)s and (strpos(lower(name), %(text)s) > 0 or strpos(identifier, %(text)s) > 0) limit %(limit)s)
        union all
        (select 'group', id::text from groups where org_id = %(org_id)s and strpos(lower(name), %(text)s) > 0 limit %(limit)s)
        union all
        (select 'service_account', id::text from service_accounts
         where org_id = %(org_id)s and strpos(lower(name), %(text)s) > 0 limit %(limit)s)
        union all
        (select 'role', id::text from organization_roles
         where org_id = %(org_id)s and (strpos(lower(name), %(text)s) > 0 or strpos(slug, %(text)s) > 0) limit %(limit)s)
        union all
        (select 'scim_token', id::text from scim_tokens
         where org_id = %(org_id)s and strpos(lower(name), %(text)s) > 0 limit %(limit)s)
        union all
        (select 'registration_token', id::text from registration_tokens
         where org_id = %(org_id)s and strpos(lower(name), %(text)s) > 0 limit %(limit)s)) matches
    limit %(limit)s"""
# Accounts by the whole address: the address index has the database's order.
FIND_IN_PLATFORM: Final = f"""
    select distinct type, id from (
        select 'user' as type, id::text as id from users where email = %(text)s
        union all
        (select 'user', id::text from ({_NAMED}) named limit %(limit)s)
        union all
        select 'organization', id::text from organizations where slug = %(text)s
        union all
        (select 'service_account', id::text from service_accounts
         where org_id is null and strpos(lower(name), %(text)s) > 0 limit %(limit)s)) matches
    limit %(limit)s"""
_LAST_CHARACTER: Final = "\U0010ffff"


def names_sql(objects: Mapping[str, Collection[str]], *, of_platform: bool) -> LiteralString:
    """Return the statement for the names of objects with these types, or an empty text if no such object has a name."""
    parts = _OF_PLATFORM if of_platform else _OF_ORGANIZATION
    return " union all ".join(sql for kind, sql in parts.items() if kind in objects)


def id_parameters(objects: Mapping[str, Collection[str]]) -> dict[str, object]:
    """Return the parameters for `names_sql`."""
    return {str(kind): sorted(ids) for kind, ids in objects.items() if kind in _OF_ORGANIZATION}


def search_parameters(text: str, limit: int) -> dict[str, object]:
    """Return the parameters for a search. Addresses are stored in lower case."""
    return {"text": text.lower(), "text_end": text.lower() + _LAST_CHARACTER, "limit": limit}


def to_name(row: Row) -> tuple[ObjectKey, sentences.ObjectName]:
    """Return a name and its object."""
    return (row[0], row[1]), sentences.ObjectName(row[2], row[3])


def to_key(row: Row) -> ObjectKey:
    """Return an object's type and id."""
    return row[0], row[1]
