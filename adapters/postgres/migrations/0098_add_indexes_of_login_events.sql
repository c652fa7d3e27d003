-- concurrently
create index concurrently if not exists login_events_by_time on login_events (created_at desc, id desc);
create index concurrently if not exists login_events_failed on login_events (created_at desc, id desc) where not success;
create index concurrently if not exists login_events_failed_of_organization on login_events (org_id, created_at desc, id desc)
    where not success and org_id is not null;
