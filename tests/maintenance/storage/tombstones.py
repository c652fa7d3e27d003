"""Records for organizations, services and webhooks that do not exist, and their deletion tombstones."""

from typing import Final
from uuid import UUID

from psycopg import sql

from adapters.postgres.engine.pool import Pool
from core.maintenance.model.housekeeping import Sweep
from tests.support.rows import DAY, NOW

# Per table a statement that adds rows for an organization, usually a row per user.
FILLING: Final = {
    "service_users": """
        insert into service_users (service_id, user_id, org_id, email, deactivated, created_at)
        select %(org)s, id, %(org)s, email, false, now() from users""",
    "group_members": "insert into group_members select %(org)s, gen_random_uuid(), id, now() from users",
    "end_users": """
        insert into end_users (org_id, user_id, email, deactivated, created_at) select %(org)s, id, email, false, now() from users""",
    "end_user_totals": "insert into end_user_totals (org_id, total) values (%(org)s, 1)",
    "siem_queue": "insert into siem_queue (org_id, siem_id, entry_id) select %(org)s, %(org)s, id from users",
    "audit_log": """
        insert into audit_log (id, org_id, action, target_type, target_id, details, created_at)
        select gen_random_uuid(), %(org)s, 'x', 'user', 'x', '{}', now() from users""",
    "events": """
        insert into events (id, org_id, name, target_id, data, created_at)
        select gen_random_uuid(), %(org)s, 'x', 'x', '{}', now() from users""",
    "login_events": """
        insert into login_events (id, user_id, org_id, service_id, provider, success, created_at)
        select gen_random_uuid(), id, %(org)s, %(org)s, 'x', true, now() from users""",
    "login_totals": """
        insert into login_totals (org_id, service_id, day, provider, shard, total)
        select %(org)s, id, now(), 'password', 0, 1 from users""",
    "member_login_totals": """
        insert into member_login_totals (org_id, day, provider, total) select %(org)s, now(), email, 1 from users""",
    "audit_totals": """
        insert into audit_totals (org_id, action, target_type, total) select %(org)s, email, 'user', 1 from users""",
    "scim_requests": """
        insert into scim_requests (org_id, at, token_id, method, path, attributes, status)
        select %(org)s, now(), id, 'GET', 'x', '{}', 200 from users""",
    "sign_in_figures": """
        insert into sign_in_figures (org_id, span, start, service_id, method, result, total)
        select %(org)s, 'day', now(), id, email, 'success', 1 from users""",
    "user_figures": """
        insert into user_figures (org_id, span, start, active, first_of_day, first_of_week, new_users)
        select %(org)s, 'day', now() - row_number() over () * interval '1 day', 1, 1, 1, 1 from users""",
    "population_figures": """
        insert into population_figures (org_id, day, counted_at, users, second_factor, passkeys, password_alone)
        select %(org)s, now() - row_number() over () * interval '1 day', now(), 1, 1, 1, 1 from users""",
    "traffic_figures": """
        insert into traffic_figures (org_id, kind, span, start, outcome, total, milliseconds, slowest)
        select %(org)s, 'scim', 'day', now(), email, 1, 1, 1 from users""",
    "webhook_deliveries": """
        insert into webhook_deliveries (id, org_id, webhook_id, event_type, payload, status, due_at, created_at, updated_at)
        select gen_random_uuid(), %(org)s, %(org)s, 'x', '{}', 'due', now(), now(), now() from users""",
}
# The organization, its service and its webhook have the same id here, so that all tombstones refer
# to the same rows.
TOMBSTONE_TABLES: Final = {
    Sweep.DELETED_ORGANIZATIONS: "deleted_organizations",
    Sweep.DELETED_SERVICES: "deleted_services",
    Sweep.DELETED_WEBHOOKS: "deleted_webhooks",
}


async def fill(pool: Pool, org: UUID, *tables: str) -> None:
    async with pool.connection() as connection:
        for table in tables or FILLING:
            await connection.execute(FILLING[table], {"org": org})


async def add_tombstone(pool: Pool, kind: Sweep, id_: UUID) -> None:
    async with pool.connection() as connection:
        tombstone = sql.SQL("insert into {} (id, deleted_at) values (%s, %s)").format(sql.Identifier(TOMBSTONE_TABLES[kind]))
        await connection.execute(tombstone, (id_, NOW - 2 * DAY))


async def count_records(pool: Pool, org: UUID) -> dict[str, int]:
    counts = {}
    async with pool.connection() as connection:
        for table in FILLING:
            query = sql.SQL("select count(*) from {} where org_id = %s").format(sql.Identifier(table))
            [(counts[table],)] = await (await connection.execute(query, (org,))).fetchall()
    return counts
