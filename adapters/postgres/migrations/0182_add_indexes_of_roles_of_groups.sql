-- concurrently
create index concurrently if not exists groups_of_role on groups (role_id) where role_id is not null;
create index concurrently if not exists groups_with_role on groups (org_id) where role is not null;
