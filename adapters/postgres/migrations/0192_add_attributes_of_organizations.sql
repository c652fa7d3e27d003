-- The attributes of users that an organization declares, beside their profile.
create table organization_attributes (
    org_id      uuid not null references organizations on delete cascade,
    name        text not null,
    label       text not null,
    kind        text not null check (kind in ('text', 'number', 'boolean', 'date', 'list')),
    writers     text[] not null check (writers <@ array['user', 'admin', 'directory', 'application']),
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
