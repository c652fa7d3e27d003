-- The queries about roles of organizations, roles of groups and sign-in policies, which most statements only need in some
-- organizations. A statement starts each of its subqueries, even those that it never runs. A function is started when it is called.

-- The groups that give a role to a confirmed member. Platform owners get none: a directory has no power over them (security C-6).
create function groups_with_roles(of_org uuid, of_user uuid) returns setof groups language sql stable as $$
    select g.* from group_members i join groups g on g.id = i.group_id and g.org_id = i.org_id
    where i.org_id = of_org and i.user_id = of_user and g.role is not null and g.mapping_stopped_at is null
      and not (select u.is_platform_owner from users u where u.id = of_user)
$$;

-- The capabilities of a role of the organization and, if `by_groups`, of the roles that groups give. Built-in roles of groups are names.
create function further_rights(of_org uuid, of_user uuid, own_role uuid, by_groups boolean) returns text[] language plpgsql stable as $$
begin
    return array(
        select unnest(r.capabilities || array['organization.view']) from organization_roles r where r.id = own_role
        union all
        select unnest(coalesce((select r.capabilities from organization_roles r where r.id = g.role_id), array[g.role]))
        from groups_with_roles(of_org, of_user) g where by_groups);
end $$;

create function roles_by_groups(of_org uuid, of_user uuid) returns text[] language plpgsql stable as $$
begin
    return array(select distinct g.role from groups_with_roles(of_org, of_user) g order by g.role);
end $$;

-- The names of all roles of a member as one text, the own one first.
create function roles_key(of_org uuid, of_user uuid) returns text language plpgsql stable as $$
begin
    return (
        select case when o.maps_groups and m.confirmed_at is not null
                    then array_to_string(m.role || roles_by_groups(m.org_id, m.user_id), ' ') else m.role end
        from memberships m join organizations o on o.id = m.org_id where m.org_id = of_org and m.user_id = of_user);
end $$;

-- Whether the session has a pass of this version of the organization's sign-in policy, for the roles of its user.
create function has_policy_pass(of_session uuid, of_org uuid, of_user uuid, of_version bigint, at timestamptz) returns boolean
language plpgsql stable as $$
begin
    return exists (
        select from policy_passes y
        where y.session_id = of_session and y.org_id = of_org and y.version = of_version and y.valid_until > at
          and y.role is not distinct from roles_key(of_org, of_user));
end $$;

-- The networks from which admins of the organization may act, or null if its sign-in policy names none.
create function admin_networks(of_org uuid) returns jsonb language plpgsql stable as $$
begin
    return (select p.rules -> 'admin_networks' from sign_in_policies p where p.org_id = of_org and p.service_id is null);
end $$;
