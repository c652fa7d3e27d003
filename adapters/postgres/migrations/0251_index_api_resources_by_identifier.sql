-- concurrently
create index concurrently if not exists api_resources_with_host on api_resources (canonical) where host is not null;
