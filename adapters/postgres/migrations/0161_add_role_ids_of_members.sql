alter table memberships
    add column role_id uuid,
    add constraint memberships_role_id_fkey foreign key (role_id) references organization_roles not valid,
    drop constraint memberships_role_check,
    add constraint memberships_role_check check (role_id is not null or is_role(role)) not valid;
create trigger role_id before insert or update of role on memberships
    for each row when (new.role_id is not null or not is_role(new.role)) execute function set_role_id();
