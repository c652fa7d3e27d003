-- From where a platform owner acted is in the platform's log only (docs/specification/security.md). Earlier releases stored it in the logs
-- of organizations, too, and in the sessions and devices of impersonated users. Where they acted without a session, the entry names them.
with owners as materialized (
    select id from users where is_platform_owner
    union
    select target_id::uuid from audit_log
    where org_id is null and action in ('platform.owner.promoted', 'platform.owner.demoted', 'service_account.created')
    union
    select id from service_accounts where org_id is null),
due as materialized (
    select id from audit_log where org_id is not null and impersonator_id is not null
    union
    select l.id from owners o join audit_log l on l.actor_id = o.id where l.org_id is not null
    union
    select l.id from owners o cross join organizations g
    join audit_log l on l.org_id = g.id and l.target_type = 'user' and l.target_id = o.id::text
    where l.actor_id is null and l.address is not null),
held as materialized (select id from audit_log where id = any(array(select id from due)) order by id for no key update)
update audit_log set address = null, agent = null, actor_id = coalesce(actor_id, target_id::uuid) where id = any(array(select id from held));
update sessions set address = null, agent = null where impersonator_id is not null;
update devices set device_type = 'browser', browser = 'Unknown browser', browser_version = null, os = 'unknown system', os_version = null
where client_hash = 'platform support'::bytea;
