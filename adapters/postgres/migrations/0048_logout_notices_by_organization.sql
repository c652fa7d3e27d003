-- A session of an application names the organization of its service. The notice is queued only for that pair.
create or replace function queue_logout_notice() returns trigger language plpgsql as $$
begin
    insert into logout_notices (id, org_id, service_id, user_id, session_id, status, due_at, created_at)
    select gen_random_uuid(), v.org_id, v.id, new.user_id, new.id, 'due', new.ended_at, new.ended_at
    from services v where v.org_id = new.org_id and v.id = new.service_id and v.backchannel_logout_uri is not null;
    if found then
        perform pg_notify('logout_notices', '');
    end if;
    return null;
end $$;
