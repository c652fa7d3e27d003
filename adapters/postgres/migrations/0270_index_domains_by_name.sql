-- concurrently
create unique index concurrently if not exists domains_key on domains (org_id, domain);
