"""SQL for the owners of verified domains."""

from typing import LiteralString


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
