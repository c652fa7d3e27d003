-- concurrently
create index concurrently if not exists home_realm_routes_of_connection on home_realm_routes (org_id, connection_id) where connection_id is not null;
