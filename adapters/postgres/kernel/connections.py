"""SQL about organizations' connections: verified domains, problems for admins, and facts about a user who has to come through one."""

from typing import Final, LiteralString

from adapters.postgres.engine.records import Columns
from adapters.postgres.engine.statements import Row
from core.kernel.connections import ConnectionFacts
from core.kernel.values import Domain


def verified_owner(host: LiteralString) -> LiteralString:
    """Return SQL for the id of the organization that verified this domain, or null.

    If no organization verified the domain itself, the closest verified parent domain decides.
    """
    return _closest("d.org_id", host)


def verified_domain_of(org_id: LiteralString, host: LiteralString) -> LiteralString:
    """Return SQL for the closest verified domain for this host, or null if it does not belong to this organization."""
    return _closest(f"case when d.org_id = {org_id} then d.domain end", host)


def _closest(value: LiteralString, host: LiteralString) -> LiteralString:
    # Keep generate_subscripts: the planner expects fewer rows from generate_series if it knows the
    # host, and would plan the statement anew every time, which takes longer than to execute it.
    # Keep the limit in the lateral subquery: without it the planner may read all domains instead of
    # the index.
    labels = f"string_to_array({host}, '.')"
    return f"""
        (select {value} from generate_subscripts({labels}, 1) number
         cross join lateral (
             select org_id, domain from domains
             where domain = array_to_string(({labels})[number:], '.') and verified_at is not null limit 1) d
         order by number limit 1)"""


# `c` is an active connection, and `h` its health.
FAILING: Final = "h.health = 'failing'"
CERTIFICATE_EXPIRES: Final = "h.certificate_end <= %(certificates_until)s"
# No verified domain leads to the connection, and either no first sign-in succeeds, or the connection has no users yet.
# Keep the scalar subqueries: for `not exists` beside `or`, the planner reads all organizations' tables.
WITHOUT_DOMAIN: Final = f"""(
    (select 1 from home_realm_routes r
     where r.org_id = c.org_id and r.connection_id = c.id and {verified_owner("r.domain")} = r.org_id limit 1) is null
    and ((select 1 from domains d where d.org_id = c.org_id and d.verified_at is not null limit 1) is null
         or (select 1 from connection_identities i where i.org_id = c.org_id and i.connection_id = c.id limit 1) is null))"""


def connection_facts(org_id: LiteralString, user: LiteralString) -> Columns:
    """Return the columns with the facts about the `users` row with this alias, in this organization."""
    return Columns(
        f"""
        {verified_domain_of(org_id, f"split_part({user}.email, '@', 2)")},
        array(select x.connection_id from connection_identities x where x.org_id = {org_id} and x.user_id = {user}.id),
        {is_listed(org_id, f"{user}.id")}""",
        3,
        to_connection_facts,
    )


def is_listed(org_id: LiteralString, user_id: LiteralString) -> LiteralString:
    """Return the condition that the user is listed for break glass."""
    return f"exists (select from break_glass_users b where b.org_id = {org_id} and b.user_id = {user_id})"


def to_connection_facts(row: Row) -> ConnectionFacts:
    domain, known_at, is_listed = row
    return ConnectionFacts(None if domain is None else Domain(domain), frozenset(known_at), is_listed)


def linked_providers(user: LiteralString, org: LiteralString) -> LiteralString:
    """Return the SQL for the providers that are linked for the user in the account itself, or at an application in the organization."""
    return f"""
        array(select distinct i.provider from identities i left join services x on x.id = i.service_id
              where i.user_id = {user} and (i.service_id is null or x.org_id = {org}))"""
