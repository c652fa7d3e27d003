-- The validations block no requests. The exclusive lock comes last, on a small table.
alter table memberships validate constraint memberships_role_check;
alter table invitations validate constraint invitations_role_check;
alter table service_accounts
    drop constraint service_accounts_role_check,
    add constraint service_accounts_role_check check (is_role(role));
