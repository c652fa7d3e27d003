create index login_events_by_time on login_events (created_at desc, id desc);
create index login_events_failed on login_events (created_at desc, id desc) where not success;
create index login_events_failed_of_organization on login_events (org_id, created_at desc, id desc)
    where not success and org_id is not null;
create unique index login_events_unknown on login_events (created_at, address, org_id, service_id, seen_by, provider, reason)
    nulls not distinct where user_id is null;
