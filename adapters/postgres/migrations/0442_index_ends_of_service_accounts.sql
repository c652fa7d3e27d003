-- concurrently
create index concurrently if not exists service_accounts_ending on service_accounts (ends_at) where ends_at is not null;
