-- The accounts that are known at the connections of organizations, by the subject. The issuer of a connection is fixed since its first
-- activation. They are apart from `identities`: each of those is a way into its account, and a connection opens its organization only.
create table connection_identities (
    org_id         uuid not null references organizations on delete cascade,
    connection_id  uuid not null,
    user_id        uuid not null references users on delete cascade,
    subject        text not null,
    email          text,  -- as the identity provider sent it last
    linked_at      timestamptz not null,
    last_used_at   timestamptz not null,
    primary key (connection_id, user_id),
    constraint connection_identities_subject_key unique (connection_id, subject),
    foreign key (org_id, connection_id) references connections (org_id, id) on delete cascade
);
create index connection_identities_of_user on connection_identities (user_id);
create index connection_identities_of_organization on connection_identities (org_id, connection_id);

-- The groups that a connection gives. A row without a value gives its group to all users who come through the connection.
create table connection_groups (
    id             uuid primary key,
    org_id         uuid not null references organizations on delete cascade,
    connection_id  uuid not null,
    value          text,  -- of the claim with the groups
    group_id       uuid not null references groups on delete cascade,
    mapped_by      uuid not null,  -- no foreign key: the account may be gone
    mapped_at      timestamptz not null,
    constraint connection_groups_key unique nulls not distinct (connection_id, value, group_id),
    foreign key (org_id, connection_id) references connections (org_id, id) on delete cascade
);
create index connection_groups_of_organization on connection_groups (org_id, connection_id);
create index connection_groups_of_group on connection_groups (group_id);
