-- Pictures of users, and logos of organizations, applications and identity providers.
-- A row has one owner: a user, an application with its organization, a connection, or an organization alone.
create table images (
    owner_id       uuid generated always as (coalesce(user_id, service_id, connection_id, org_id)) stored primary key,
    user_id        uuid references users on delete cascade,
    org_id         uuid references organizations on delete cascade,
    service_id     uuid references services on delete cascade,
    connection_id  uuid references connections on delete cascade,
    key            text not null constraint images_key_key unique,  -- the part of the address that cannot be guessed
    small          bytea not null,  -- PNG, as `large`
    large          bytea not null,
    created_at     timestamptz not null,
    constraint images_owner_check check (num_nonnulls(user_id, connection_id, org_id) = 1 and (service_id is null or org_id is not null))
);
create index images_of_user on images (user_id) where user_id is not null;
create index images_of_organization on images (org_id) where org_id is not null;
create index images_of_service on images (service_id) where service_id is not null;
create index images_of_connection on images (connection_id) where connection_id is not null;
