"""SQL for the problems with an organization's connections that an admin should solve."""

from typing import Final

from adapters.postgres.kernel.verified_domains import verified_owner

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
