-- Programs that act for an organization or for the platform, and their credentials.

create table service_accounts (
    id          uuid primary key,  -- also its client id
    org_id      uuid references organizations on delete cascade,  -- null: of the platform
    name        text not null,
    owner_id    uuid not null,     -- the user who answers for it; the account may be gone
    role        text check (role in ('owner', 'admin', 'member')),
    scopes      text[],            -- null: all that the role allows
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
    secret_hash   bytea,    -- SHA-256
    public_key    jsonb,    -- RFC 7517
    issuer        text,     -- of the tokens of a pipeline, their audience, and the pattern of their subject
    audience      text,
    subject       text,
    expires_at    timestamptz,
    created_by    uuid not null,
    created_at    timestamptz not null,
    last_used_at  timestamptz,
    announced     smallint,  -- the days before the end that were announced last
    check ((secret_hash is not null) = (kind = 'secret')),
    check ((public_key is not null) = (kind = 'key')),
    check ((issuer is not null and audience is not null and subject is not null) = (kind = 'federated'))
);
create index credentials_of_client on credentials (client_id, created_at desc, id desc);
create index credentials_of_organization on credentials (org_id);
create index credentials_by_expiry on credentials (expires_at) where expires_at is not null;

-- The name that a service account had when it acted.
alter table audit_log add column actor_name text;
