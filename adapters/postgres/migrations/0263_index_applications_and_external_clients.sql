-- concurrently
create index concurrently if not exists services_registered on services (org_id, created_at, id) where client_uri is null;
create index concurrently if not exists login_events_external on login_events (org_id, created_at desc, id desc)
    where success and external_client is not null;
