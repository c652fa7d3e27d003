-- The groups that may use an API resource with the policy `assigned`, beside its assigned users. Version 0.9.0 does not know them.
create table api_resource_groups_assigned (
    org_id       uuid not null references organizations on delete cascade,
    resource_id  uuid not null references api_resources on delete cascade,
    group_id     uuid not null references groups on delete cascade,
    assigned_at  timestamptz not null,
    primary key (resource_id, group_id)
);
create index api_resource_groups_assigned_of_group on api_resource_groups_assigned (group_id);
create index api_resource_groups_assigned_of_organization on api_resource_groups_assigned (org_id);
