-- The groups of organizations, and the applications that they open. Version 0.9.0 does not know them.
create table groups (
    id                  uuid primary key,
    org_id              uuid not null references organizations on delete cascade,
    name                text not null,
    name_key            text not null,            -- the name without regard to case (core/tenancy/model/groups.py)
    description         text,
    external_id         text,                     -- of a group of the directory
    scim_token_id       uuid,                     -- the directory that created it, also a revoked one; null: made by hand
    member_count        integer not null default 0,
    created_at          timestamptz not null,
    updated_at          timestamptz not null,
    members_changed_at  timestamptz not null,
    constraint groups_name_key unique (org_id, name_key)
);

-- Without foreign keys to the organization and to the group: a group can have very many members. Those of a deleted
-- organization are removed in batches, and deleting a group removes its members.
create table group_members (
    org_id    uuid not null,
    group_id  uuid not null,
    user_id   uuid not null references users on delete cascade,
    added_at  timestamptz not null,
    primary key (group_id, user_id)
);
create index group_members_of_organization on group_members (org_id, user_id);
create index group_members_of_user on group_members (user_id);

-- The count follows every change, also one by a foreign key. Its cost does not grow with the group.
create function count_group_members() returns trigger language plpgsql as $$
begin
    with changed as materialized (
        select group_id, count(*) * (case when tg_op = 'INSERT' then 1 else -1 end) as members from changed_rows group by group_id),
    held as materialized (
        select id from groups where id in (select group_id from changed) order by id for no key update)
    update groups g set member_count = member_count + c.members::integer from changed c, (select count(*) from held) before
    where g.id = c.group_id;
    return null;
end $$;
create trigger group_members_added after insert on group_members
    referencing new table as changed_rows for each statement execute function count_group_members();
create trigger group_members_removed after delete on group_members
    referencing old table as changed_rows for each statement execute function count_group_members();

-- The groups that may use a service with the policy `assigned`, beside its assigned users.
create table service_groups_assigned (
    org_id       uuid not null references organizations on delete cascade,
    service_id   uuid not null references services on delete cascade,
    group_id     uuid not null references groups on delete cascade,
    assigned_at  timestamptz not null,
    primary key (service_id, group_id)
);
create index service_groups_assigned_of_group on service_groups_assigned (group_id);
create index service_groups_assigned_of_organization on service_groups_assigned (org_id);

-- Whether a token may also create, change and delete groups of the organization.
alter table scim_tokens add column directory_groups boolean not null default false;
