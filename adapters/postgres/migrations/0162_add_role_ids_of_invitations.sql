-- Apart from the one before, so that no transaction waits for two tables. An invitation that has ended keeps the name of a deleted role.
alter table invitations
    add column role_id uuid,
    add constraint invitations_role_id_fkey foreign key (role_id) references organization_roles not valid,
    drop constraint invitations_role_check,
    add constraint invitations_role_check
        check ((role_id is not null or is_role(role) or status <> 'pending') and role <> 'owner') not valid;
create trigger role_id before insert or update of role on invitations
    for each row when (new.role_id is not null or not is_role(new.role)) execute function set_role_id();
