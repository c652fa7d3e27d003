-- SCIM: tokens, the users that directories know, blocks, and the log of requests.

create table scim_tokens (
    id                uuid primary key,
    org_id            uuid not null references organizations on delete cascade,
    name              text not null,
    prefix            text not null,
    token_hash        bytea not null constraint scim_tokens_hash_key unique,  -- SHA-256 of the whole token
    expires_at        timestamptz,
    created_by        uuid not null,  -- no foreign key: the account may be gone
    created_at        timestamptz not null,
    announced         smallint,  -- as in api_keys
    -- whether the token may also create, change and delete groups of the organization
    directory_groups  boolean not null default false
);
create index scim_tokens_by_age on scim_tokens (org_id, created_at, id);
create index scim_tokens_by_expiry on scim_tokens (expires_at) where expires_at is not null;

-- The data about a user from the directory of an organization. Other organizations do not see it. For
-- former members, `membership_id` and `joined_at` are of the last membership, and give the order in lists.
create table scim_users (
    org_id         uuid not null references organizations on delete cascade,
    user_id        uuid not null references users on delete cascade,
    external_id    text,
    formatted      text,
    given_name     text,
    family_name    text,
    display_name   text,
    provisioned    boolean not null,  -- the directory created the account
    membership_id  uuid,
    joined_at      timestamptz,
    updated_at     timestamptz not null,
    -- of a former member: the address when they left; null: the account's address
    email          text,
    user_name      text,  -- null: the email address is the userName
    -- other attributes from the directory, such as title, by their SCIM names
    attributes     jsonb not null default '{}',
    primary key (org_id, user_id),
    check ((membership_id is null) = (joined_at is null))
);
create index scim_users_of_user on scim_users (user_id);
create index scim_users_outside on scim_users (org_id, joined_at, membership_id)
    where membership_id is not null;
create index scim_users_by_external_id on scim_users (org_id, external_id) where external_id is not null;
create index scim_users_by_email on scim_users (org_id, email) where email is not null;
-- The group is read in the order of ids, and former members are few among many members.
create index scim_users_outside_by_id on scim_users (org_id, user_id) where membership_id is not null;
create unique index scim_users_user_name_key on scim_users (org_id, lower(user_name))
    where user_name is not null;
create trigger forget_attributes_of_directory after delete on scim_users
    for each row execute function forget_attributes();

-- The users that the directory of an organization blocks, by deactivating or deleting them. A blocked
-- user has no membership in the organization, and cannot use its services.
create table directory_blocks (
    org_id   uuid not null references organizations on delete cascade,
    user_id  uuid not null references users on delete cascade,
    since    timestamptz not null,
    primary key (org_id, user_id)
);
create index directory_blocks_of_user on directory_blocks (user_id);

-- The last SCIM requests of each organization, for its admins. No column holds a value of a user.
-- Unlogged, so that a write waits for no disk: a crash of the database empties the table.
create unlogged table scim_requests (
    org_id      uuid not null,  -- no foreign key: its check would lock the row of the organization
    id          bigint generated always as identity,
    at          timestamptz not null,
    token_id    uuid not null,
    method      text not null,
    path        text not null,
    attributes  text[] not null,
    status      integer not null,
    scim_type   text,
    error       text,
    primary key (org_id, id)
);
