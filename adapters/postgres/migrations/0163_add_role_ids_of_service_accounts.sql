alter table service_accounts
    add column role_id uuid references organization_roles,
    drop constraint service_accounts_role_check,
    add constraint service_accounts_role_check check (role_id is not null or is_role(role));
create trigger role_id before insert or update of role on service_accounts
    for each row when (new.role_id is not null or not is_role(new.role)) execute function set_role_id();
