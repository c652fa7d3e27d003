-- The recoveries of accounts that are not finished, one per account. One that is used, canceled or replaced has no row.
create table account_recoveries (
    id            uuid primary key,
    user_id       uuid not null unique references users on delete cascade,
    org_id        uuid,           -- of the issuer; null for the platform. No foreign keys of both (docs/adr/0005)
    issuer_id     uuid not null,
    code_salt     bytea not null,
    code_hash     bytea not null,
    attempts      smallint not null default 0,
    browser_hash  bytea,          -- of the browser that gave the link and the code
    secret        bytea,          -- sealed: the secret for an authenticator app, made for this browser
    created_at    timestamptz not null,
    expires_at    timestamptz not null,
    check ((browser_hash is null) = (secret is null))
);
create index account_recoveries_by_age on account_recoveries (expires_at);
