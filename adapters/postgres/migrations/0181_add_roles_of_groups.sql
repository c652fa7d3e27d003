-- The role in the organization that the confirmed members of a group get, beside their own. While a group of an organization
-- has a role, `organizations.maps_groups` is true. `mapped_by` is a member, who may have left since.
alter table groups
    add column role text,
    add column role_id uuid references organization_roles,
    add column mapped_by uuid,
    add column mapped_at timestamptz,
    add column mapping_stopped_at timestamptz,  -- the member who gave the role lost the rights to
    add constraint groups_role_check check ((role_id is not null or is_role(role)) and role <> 'owner');
create trigger role_id before insert or update of role on groups
    for each row when (new.role_id is not null or not is_role(new.role)) execute function set_role_id();
