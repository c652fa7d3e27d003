-- The groups whose users have a role of an application. Version 0.9.0 does not know them.
create table service_role_groups (
    org_id       uuid not null references organizations on delete cascade,
    service_id   uuid not null,
    role_id      uuid not null references service_roles on delete cascade,
    group_id     uuid not null references groups on delete cascade,
    assigned_at  timestamptz not null,
    primary key (role_id, group_id)
);
create index service_role_groups_of_group on service_role_groups (group_id, service_id);
create index service_role_groups_of_organization on service_role_groups (org_id, service_id);
