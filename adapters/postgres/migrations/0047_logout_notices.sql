-- Back-channel logout of OpenID Connect: the queue of notices to applications about sessions that ended.

-- The rows have no foreign keys: a notice outlives its session, and its account.
create table logout_notices (
    id             uuid primary key,
    org_id         uuid not null,
    service_id     uuid not null,
    user_id        uuid not null,
    session_id     uuid not null,
    -- As in webhook_deliveries: `due` can be claimed now, `waiting` becomes due later. A notice that
    -- was delivered or given up is deleted.
    status         text not null check (status in ('due', 'waiting')),
    due_at         timestamptz not null,
    claims         integer not null default 0,  -- attempts that were started
    attempt_count  integer not null default 0,  -- those with a known outcome
    created_at     timestamptz not null
);
create index logout_notices_due on logout_notices (org_id, service_id, due_at) where status = 'due';
create index logout_notices_waiting on logout_notices (due_at) where status = 'waiting';
create index logout_notices_by_age on logout_notices (created_at);

-- Whatever ends a session of OpenID Connect, its application gets one notice, if it wants notices.
create function queue_logout_notice() returns trigger language plpgsql as $$
begin
    insert into logout_notices (id, org_id, service_id, user_id, session_id, status, due_at, created_at)
    select gen_random_uuid(), v.org_id, v.id, new.user_id, new.id, 'due', new.ended_at, new.ended_at
    from services v where v.id = new.service_id and v.backchannel_logout_uri is not null;
    if found then
        perform pg_notify('logout_notices', '');
    end if;
    return null;
end $$;
create trigger openid_session_ended after update of ended_at on sessions
    for each row when (old.ended_at is null and new.ended_at is not null and new.scope is not null and new.service_id is not null)
    execute function queue_logout_notice();
