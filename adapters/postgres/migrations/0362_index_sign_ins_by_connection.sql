-- concurrently
create index concurrently if not exists login_events_of_connection on login_events (connection_id, created_at desc, id desc)
    where connection_id is not null;
