-- The one list of roles in the database. A test compares it with the roles of the code.
create function is_role(name text) returns boolean language sql immutable parallel safe return name in ('owner', 'admin', 'member');
alter table memberships
    drop constraint memberships_role_check,
    add constraint memberships_role_check check (is_role(role)) not valid;
