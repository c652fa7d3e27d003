-- Provisioning: the tokens of directories, and what they have said of people.

create table scim_tokens (
    id          uuid primary key,
    org_id      uuid not null references organizations on delete cascade,
    name        text not null,
    prefix      text not null,
    token_hash  bytea not null constraint scim_tokens_hash_key unique,  -- SHA-256 of the whole token
    expires_at  timestamptz,
    created_by  uuid not null,  -- the account may be gone by now
    created_at  timestamptz not null
);
create index scim_tokens_by_age on scim_tokens (org_id, created_at, id);

-- What the directory of an organization has said of a person, which is nothing to anybody else, and whom it knows without their being members:
-- those whom it has deactivated, whose membership is put away here so that nothing counts it or lets them in by it, and those whom it has
-- made, and taken out of the group. Of these two, `membership_id` and `joined_at` are those of the last membership; they say where in a list
-- the person is. `role` is null for whoever is not to be a member again by being activated.
create table scim_users (
    org_id          uuid not null references organizations on delete cascade,
    user_id         uuid not null references users on delete cascade,
    external_id     text,
    formatted       text,
    given_name      text,
    family_name     text,
    display_name    text,
    provisioned     boolean not null,      -- the directory has made the account
    deactivated_at  timestamptz,
    whole_account   boolean not null default false,  -- what was deactivated
    membership_id   uuid,
    joined_at       timestamptz,
    role            text check (role in ('admin', 'member')),
    confirmed_at    timestamptz,
    updated_at      timestamptz not null,
    primary key (org_id, user_id),
    check ((membership_id is null) = (joined_at is null)),
    check (membership_id is not null or (deactivated_at is null and role is null and confirmed_at is null)),
    check (deactivated_at is not null or (role is null and not whole_account))
);
create index scim_users_of_user on scim_users (user_id);
create index scim_users_outside on scim_users (org_id, joined_at, membership_id) where membership_id is not null;
create index scim_users_by_external_id on scim_users (org_id, external_id) where external_id is not null;
