-- Null: the email address is the userName. A directory that also gives a primary email address may use any string.
alter table scim_users add column user_name text;
create unique index scim_users_user_name_key on scim_users (org_id, lower(user_name)) where user_name is not null;
-- The further attributes that a directory gave to a user, such as title and department, by their SCIM names.
alter table scim_users add column attributes jsonb not null default '{}';
-- The id that a directory gave to the group.
alter table organizations add column scim_external_id text;
