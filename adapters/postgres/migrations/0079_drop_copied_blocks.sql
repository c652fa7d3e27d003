-- Apart from the one before, so that no transaction waits for two tables.
drop trigger copy_block_of_previous_release on scim_users;
drop function copy_block_of_previous_release;
alter table scim_users drop column deactivated_at, drop column whole_account, drop column role, drop column confirmed_at;
