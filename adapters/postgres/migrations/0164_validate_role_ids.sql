-- The validations block no requests.
alter table memberships validate constraint memberships_role_id_fkey, validate constraint memberships_role_check;
alter table invitations validate constraint invitations_role_id_fkey, validate constraint invitations_role_check;
