-- How applications authenticate as OAuth clients, and what they demand of sign-ins.
alter table services
    add column former_secret_hash               bytea,        -- SHA-256; accepted until the time below
    add column former_secret_expires_at         timestamptz,
    add column jwks                             jsonb,        -- an array of public keys (RFC 7517)
    add column jwks_uri                         text,
    add column accepts_token_endpoint_audience  boolean not null default false,
    add column access_token_seconds             integer,      -- null: as on the platform, as below
    add column refresh_token_seconds            integer,
    add column enterprise                       boolean not null default false,
    add column required_acr                     text check (required_acr in ('mfa')),
    add constraint services_former_secret_check check ((former_secret_hash is null) = (former_secret_expires_at is null)),
    add constraint services_keys_check check (jwks is null or jwks_uri is null);

-- The assertions with which clients authenticated, so that each works once. The client need not exist any more.
create table client_assertions (
    client_id   uuid not null,
    jti_hash    bytea not null,  -- SHA-256
    expires_at  timestamptz not null,
    primary key (client_id, jti_hash)
);
create index client_assertions_by_expiry on client_assertions (expires_at);
