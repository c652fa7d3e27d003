-- concurrently
create unique index concurrently if not exists connections_of_organizations_key on connections (org_id, slug) nulls not distinct;
create unique index concurrently if not exists connections_id_key on connections (org_id, id);
