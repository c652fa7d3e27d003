-- The roles that a user has at a service, with the group that gives each, or without one. A directory can put members into groups before
-- they confirm the membership. Then a group gives no role yet.
create function service_roles_of(of_org uuid, of_user uuid, of_service uuid)
returns table (role_id uuid, group_id uuid, assigned_at timestamptz) language sql stable as $$
    select h.role_id, null::uuid, h.assigned_at from service_role_users h
    where h.user_id = of_user and h.org_id = of_org and h.service_id = of_service
    union all
    select j.role_id, j.group_id, j.assigned_at
    from group_members i join service_role_groups j on j.group_id = i.group_id and j.org_id = i.org_id
    where i.org_id = of_org and i.user_id = of_user and j.service_id = of_service
      and (exists (select from memberships m where m.org_id = i.org_id and m.user_id = i.user_id and m.confirmed_at is not null)
           or exists (select from end_users e where e.org_id = i.org_id and e.user_id = i.user_id))
$$;

-- The further facts about a user that the tokens of an application name, as JSON. Most applications need none, and a statement would
-- start all of these subqueries even if it ran none of them. With `everything`, it has also the facts that the application does not use.
create function application_facts(of_service uuid, of_user uuid, with_groups boolean, everything boolean) returns jsonb
language plpgsql stable as $$
begin
    return (
        select jsonb_build_object(
            'document', c.document,
            -- The own values, the values of the user's groups, and their merge rules
            'attributes', case when everything or 'attribute' = any(c.sources) then (
                select jsonb_build_array(
                    (select a.attributes from attribute_values a where a.org_id = v.org_id and a.user_id = u.id), y.of_groups,
                    case when y.of_groups is not null then (
                        select jsonb_object_agg(a.name, a.merge) from organization_attributes a where a.org_id = v.org_id) end)
                from (select jsonb_agg(y.attributes order by g.name_key, g.id) as of_groups
                      from group_members i join groups g on g.id = i.group_id and g.org_id = i.org_id
                      join group_attribute_values y on y.group_id = g.id
                      where i.org_id = v.org_id and i.user_id = u.id) y) end,
            -- The values that the directory of the organization sent
            'directory', case when everything or 'directory' = any(c.sources) then (
                select x.attributes || jsonb_strip_nulls(jsonb_build_object(
                    'externalId', x.external_id, 'displayName', x.display_name, 'formatted', x.formatted, 'givenName', x.given_name,
                    'familyName', x.family_name,
                    'userName', coalesce(x.user_name, case when u.email_verified_at is not null then u.email end)))
                from scim_users x where x.org_id = v.org_id and x.user_id = u.id) end,
            -- The roles of the organization that groups give, beside the own one
            'further_roles', case when o.maps_groups and m.confirmed_at is not null then
                nullif(array_remove(roles_by_groups(m.org_id, m.user_id), m.role), '{}') end,
            'app_roles', case when everything or v.authorization_version > 0 then array(
                select distinct r.slug from service_roles_of(v.org_id, u.id, v.id) s
                join service_roles r on r.id = s.role_id and r.service_id = v.id order by r.slug) end,
            'permissions', case when everything or v.authorization_version > 0 then array(
                select distinct p.name from service_roles_of(v.org_id, u.id, v.id) s
                join service_roles r on r.id = s.role_id and r.service_id = v.id, unnest(r.permissions) p (name) order by p.name) end,
            -- The groups of the organization that the user is in, and whether each is assigned to the application
            'groups', case when everything or with_groups then (
                select jsonb_agg(jsonb_build_array(
                    g.id, g.name, g.external_id,
                    exists (select from service_groups_assigned a where a.service_id = v.id and a.group_id = g.id))
                    order by g.name_key, g.id)
                from group_members i join groups g on g.id = i.group_id and g.org_id = i.org_id
                where i.org_id = v.org_id and i.user_id = u.id) end)
        from services v join organizations o on o.id = v.org_id join users u on u.id = of_user
        left join memberships m on m.org_id = v.org_id and m.user_id = u.id left join service_claims c on c.service_id = v.id
        where v.id = of_service);
end $$;
