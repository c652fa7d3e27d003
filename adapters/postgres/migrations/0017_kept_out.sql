-- Whom a directory has deleted, and whose account is others', too, stays out of the organization's services as whoever it has deactivated, but is
-- nobody whom it knows: such a row says no more than that.
alter table scim_users drop constraint scim_users_check1;
alter table scim_users add constraint scim_users_check1 check (membership_id is not null or (role is null and confirmed_at is null));
create index scim_users_kept_out on scim_users (org_id) where deactivated_at is not null;
