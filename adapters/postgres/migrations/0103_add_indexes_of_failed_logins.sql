-- concurrently
create index concurrently if not exists login_events_of_request on login_events (request_id) where request_id is not null and not success;
create index concurrently if not exists login_events_failed_on_platform on login_events (created_at desc, id desc) where not success and org_id is null;
create index concurrently if not exists login_events_failed_by_reason on login_events (org_id, reason, created_at desc, id desc) where not success;
create index concurrently if not exists login_events_failed_of_user on login_events (user_id, created_at desc) where not success and user_id is not null;
create index concurrently if not exists login_events_failed_of_reason on login_events (reason, created_at desc, id desc) where not success;
