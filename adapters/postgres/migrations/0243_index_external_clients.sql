-- concurrently
create index concurrently if not exists services_external on services (document_fetched_at) where client_uri is not null;
