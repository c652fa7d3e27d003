-- Whether a group of the organization opens a service or an API resource to this user. They are asked last, if nothing else opens it.
-- A directory can put members into groups before they confirm the membership. Then a group gives nothing yet, so that no page of a
-- foreign organization makes a stranger its user.
create function group_opens_service(of_service uuid, of_user uuid) returns boolean language plpgsql stable as $$
begin
    return exists (
        select from service_groups_assigned g join group_members i on i.group_id = g.group_id
        where g.service_id = of_service and i.user_id = of_user
          and (exists (select from memberships m where m.org_id = g.org_id and m.user_id = i.user_id and m.confirmed_at is not null)
               or exists (select from end_users e where e.org_id = g.org_id and e.user_id = i.user_id)));
end $$;

create function group_opens_resource(of_resource uuid, of_user uuid) returns boolean language plpgsql stable as $$
begin
    return exists (
        select from api_resource_groups_assigned g join group_members i on i.group_id = g.group_id
        where g.resource_id = of_resource and i.user_id = of_user
          and (exists (select from memberships m where m.org_id = g.org_id and m.user_id = i.user_id and m.confirmed_at is not null)
               or exists (select from end_users e where e.org_id = g.org_id and e.user_id = i.user_id)));
end $$;

-- The period of trusted devices in the organization's sign-in policy, in days, or null if the policy has none.
create function policy_device_trust_days(of_org uuid) returns integer language plpgsql stable as $$
begin
    return (select (p.rules ->> 'device_trust_days')::integer from sign_in_policies p where p.org_id = of_org and p.service_id is null);
end $$;
