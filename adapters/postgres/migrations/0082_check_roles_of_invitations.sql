-- Apart from the one before, so that no transaction waits for two tables.
alter table invitations
    drop constraint invitations_role_check,
    add constraint invitations_role_check check (is_role(role) and role <> 'owner') not valid;
