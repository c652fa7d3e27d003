-- concurrently
create index concurrently if not exists memberships_of_role on memberships (role_id) where role_id is not null;
create index concurrently if not exists invitations_of_role on invitations (role_id) where role_id is not null;
create index concurrently if not exists service_accounts_of_role on service_accounts (role_id) where role_id is not null;
