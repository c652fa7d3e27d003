-- The attributes of users that an organization declares, beside their profile.
create table organization_attributes (
    org_id      uuid not null references organizations on delete cascade,
    name        text not null,
    label       text not null,
    kind        text not null check (kind in ('text', 'number', 'boolean', 'date', 'list')),
    writers     text[] not null check (writers <@ array['user', 'admin', 'directory', 'application']),  -- directory: not used yet
    merge       text not null check (merge in ('first', 'union', 'least', 'greatest')),  -- of the values of several groups
    position    integer not null,
    created_at  timestamptz not null,
    primary key (org_id, name)
);
-- The values of a user, by the names of the attributes.
create table attribute_values (
    org_id      uuid not null references organizations on delete cascade,
    user_id     uuid not null references users on delete cascade,
    attributes  jsonb not null,
    changed_at  timestamptz not null,
    primary key (org_id, user_id)
);
create index attribute_values_of_user on attribute_values (user_id);

-- The values of a user end with the last relation to the organization, also if version 0.9.0 ends it.
create function forget_attributes() returns trigger language plpgsql as $$
begin
    delete from attribute_values a
    where a.org_id = old.org_id and a.user_id = old.user_id
      and not exists (select from memberships m where m.org_id = a.org_id and m.user_id = a.user_id)
      and not exists (select from end_users e where e.org_id = a.org_id and e.user_id = a.user_id)
      and not exists (select from scim_users s where s.org_id = a.org_id and s.user_id = a.user_id);
    return null;
end $$;
create trigger forget_attributes_of_member after delete on memberships for each row execute function forget_attributes();
create trigger forget_attributes_of_end_user after delete on end_users for each row execute function forget_attributes();
create trigger forget_attributes_of_directory after delete on scim_users for each row execute function forget_attributes();
