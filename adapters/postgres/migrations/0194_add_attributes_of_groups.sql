-- The values of a group, by the names of the attributes. A user without an own value has those of the groups.
create table group_attribute_values (
    group_id    uuid primary key references groups on delete cascade,
    org_id      uuid not null references organizations on delete cascade,
    attributes  jsonb not null,
    changed_at  timestamptz not null
);
create index group_attribute_values_of_organization on group_attribute_values (org_id);
