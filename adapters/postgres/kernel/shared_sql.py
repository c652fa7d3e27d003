"""SQL that statements of several areas have."""

from typing import Final

# An organization registered the client. External clients stand in the same table, but in no list of applications.
REGISTERED: Final = "v.client_uri is null"
# Acts of platform owners show no address to organizations (security #addresses-of-platform-owners).
# Join the account `w` from the attempt `l` if the user was a platform owner then or later.
# A statement reads the array once. Without the array, the statement would search the audit log for every attempt.
JOIN_PLATFORM_OWNER: Final = """
    left join users w on w.id = l.user_id and w.id = any(array(
        select id from users where is_platform_owner
        union all
        select target_id::uuid from audit_log where org_id is null and action = 'platform.owner.demoted'))
      and (w.is_platform_owner or exists (
        select from audit_log d where d.org_id is null and d.target_type = 'user' and d.target_id = w.id::text
          and d.action = 'platform.owner.demoted' and d.created_at >= l.created_at))"""

# The statement parts that deliver and store events. They read the rows `logs`: a row per event and log that it goes to.

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

# Assignments to `sign_in_flows`
NO_PROOFS: Final = "proofs = '[]', identity = null, proofs_expire_at = null"
# Attempts start again.
NO_CHALLENGE: Final = """
    challenge_id = null, challenge = null, challenge_email = null, challenge_begun_at = null, challenge_expires_at = null,
    challenge_user_id = null, challenge_hash = null, challenge_code = null, failures = 0"""
