-- Programs that act for an organization or for the platform, their credentials, and API resources.

create table service_accounts (
    id          uuid primary key,  -- also its client id
    org_id      uuid references organizations on delete cascade,  -- null: of the platform
    name        text not null,
    owner_id    uuid not null,  -- the user who is responsible for it; the account may be gone
    role        text check (role in ('owner', 'admin', 'member')),
    scopes      text[],  -- null: all that the role allows
    granted     text[] not null default '{}',  -- the capabilities that an owner granted by name
    created_by  uuid not null,
    created_at  timestamptz not null,
    updated_at  timestamptz not null,
    check ((org_id is null) = (role is null))
);
create index service_accounts_of_organization on service_accounts (org_id, created_at desc, id desc);
create index service_accounts_of_owner on service_accounts (owner_id);

-- How a service account or an API resource authenticates. `client_id` is the id of either.
create table credentials (
    id            uuid primary key,
    client_id     uuid not null,
    org_id        uuid references organizations on delete cascade,  -- null: of the platform
    kind          text not null check (kind in ('secret', 'key', 'federated')),
    name          text not null,
    secret_hash   bytea,  -- SHA-256
    public_key    jsonb,  -- RFC 7517
    -- of the tokens of a pipeline, with their audience and the pattern of their subject
    issuer        text,
    audience      text,
    subject       text,
    expires_at    timestamptz,
    created_by    uuid not null,
    created_at    timestamptz not null,
    last_used_at  timestamptz,
    announced     smallint,  -- as in api_keys
    -- identifies the credential in lists: the start of the secret, or the thumbprint of the key
    -- (RFC 7638)
    hint          text,
    check ((secret_hash is not null) = (kind = 'secret')),
    check ((public_key is not null) = (kind = 'key')),
    check ((issuer is not null and audience is not null and subject is not null) = (kind = 'federated'))
);
create index credentials_of_client on credentials (client_id, created_at desc, id desc);
create index credentials_of_organization on credentials (org_id);
create index credentials_by_expiry on credentials (expires_at) where expires_at is not null;

-- The APIs of an organization that applications get access tokens for (RFC 8707).
create table api_resources (
    id                  uuid primary key,
    org_id              uuid not null references organizations on delete cascade,
    identifier          text not null,  -- as registered: the `aud` of tokens
    canonical           text not null,  -- the identifier after normalization (RFC 3986 section 6.2)
    -- of an https identifier, which the organization must have verified; null for URNs and the
    -- loopback interface
    host                text,
    name                text not null,
    scope_names         text[] not null,
    scope_descriptions  text[] not null,
    token_seconds       integer not null check (token_seconds between 60 and 3600),
    access_policy       text not null check (access_policy in ('anyone', 'members', 'assigned')),
    created_at          timestamptz not null,
    updated_at          timestamptz not null,
    constraint api_resources_identifier_key unique (org_id, canonical),
    check (cardinality(scope_names) = cardinality(scope_descriptions))
);
-- A host has one verified owner, and a URN names its organization. Only loopback identifiers could
-- belong to several organizations.
create unique index api_resources_without_host on api_resources (canonical) where host is null;

-- The applications that may ask for an API resource for their users.
create table api_resource_clients (
    org_id       uuid not null,
    resource_id  uuid not null references api_resources on delete cascade,
    service_id   uuid not null references services on delete cascade,
    own_scopes   text[] not null,  -- for the application itself, with the grant client_credentials
    created_at   timestamptz not null,
    primary key (resource_id, service_id)
);
create index api_resource_clients_of_service on api_resource_clients (service_id);

-- The service accounts that get tokens for an API resource, with the scopes that an admin granted.
create table api_resource_service_accounts (
    org_id              uuid not null,
    resource_id         uuid not null references api_resources on delete cascade,
    service_account_id  uuid not null references service_accounts on delete cascade,
    own_scopes          text[] not null,
    created_at          timestamptz not null,
    primary key (resource_id, service_account_id)
);
create index api_resource_service_accounts_of_account on api_resource_service_accounts (service_account_id);

create table api_resource_assignments (
    org_id       uuid not null,
    resource_id  uuid not null references api_resources on delete cascade,
    user_id      uuid not null references users on delete cascade,
    created_at   timestamptz not null,
    primary key (resource_id, user_id)
);
create index api_resource_assignments_of_user on api_resource_assignments (user_id, org_id);
create index api_resource_assignments_by_age on api_resource_assignments (resource_id, created_at, user_id);
