"""The statement parts that deliver events. These parts read the rows `logs`: a row per event and log that it goes to."""

from typing import Final

# Queue a delivery to every webhook in an active organization that has the event. Without webhooks this is a single
# index lookup. If a webhook is deleted at the same time, the housekeeper deletes its deliveries.
DELIVER: Final = """
    insert into webhook_deliveries (id, org_id, webhook_id, event_type, actor_id, payload, status, due_at, created_at,
                                    updated_at)
    select gen_random_uuid(), w.org_id, w.id, l.name, p.actor_user_id, row_to_json(p), %(status)s,
           l.at + %(delay)s::interval, l.at, l.at
    from logs l
    join webhooks w on w.org_id = l.log and w.is_active and l.name = any(w.events)
    join organizations o on o.id = w.org_id and o.status = 'active'
    cross join lateral (
        select l.name as event, to_char(l.at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as timestamp,
               l.log as organization_id, case when l.actor_kind is null then l.actor_id end as actor_user_id, l.actor_email,
               json_build_object('kind', l.caller_kind, 'id', l.actor_id, 'name', l.actor_name) as actor,
               l.payload as data) p
    returning pg_notify('webhooks', '')"""
WRITE: Final = """
    insert into events (id, org_id, name, actor_id, actor_kind, impersonator_id, target_id, data, created_at)
    select gen_random_uuid(), log, name, actor_id, actor_kind, impersonator_id, target_id, data, at
    from logs"""
