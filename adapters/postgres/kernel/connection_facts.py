"""SQL for the facts about a user that decide which organization connection they have to come through."""

from typing import LiteralString

from adapters.postgres.engine.records import Columns
from adapters.postgres.engine.statements import Row
from adapters.postgres.kernel.verified_domains import verified_domain_of
from core.kernel.connections import ConnectionFacts
from core.kernel.values import Domain


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
