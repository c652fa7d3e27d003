-- concurrently
-- The page of an application shows its last failed sign-in.
create index concurrently if not exists login_events_failed_of_service on login_events (service_id, created_at desc, id desc) where not success and service_id is not null;
