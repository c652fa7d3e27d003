-- The users that connections have put into groups, by the claims of their identity providers. Only these are taken out again.
create table connection_group_members (
    org_id         uuid not null references organizations on delete cascade,
    connection_id  uuid not null,
    group_id       uuid not null references groups on delete cascade,
    user_id        uuid not null references users on delete cascade,
    was_member     boolean not null,  -- before, so they stay in the group
    primary key (connection_id, user_id, group_id),
    foreign key (org_id, connection_id) references connections (org_id, id) on delete cascade
);
create index connection_group_members_of_organization on connection_group_members (org_id, connection_id);
create index connection_group_members_of_group on connection_group_members (group_id);
create index connection_group_members_of_user on connection_group_members (user_id);
