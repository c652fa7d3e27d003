-- Leases, deferred deletion and anonymization, and the issuer of the installation.

-- Work that one process at a time may do. A row instead of a session lock, so that it works through a
-- connection pooler.
create table leases (
    name        text primary key,
    holder      uuid not null,
    expires_at  timestamptz not null
);

-- Deleted organizations, services and webhooks. The housekeeper deletes their remaining records, which
-- have no foreign key: a cascade would delete millions of rows in one transaction (docs/adr/0005,
-- docs/adr/0006).
create table deleted_organizations (
    id          uuid primary key,
    deleted_at  timestamptz not null
);

create table deleted_services (
    id          uuid primary key,
    deleted_at  timestamptz not null
);

create table deleted_webhooks (
    id          uuid primary key,
    deleted_at  timestamptz not null
);

-- Where an anonymization continues in a log that is too long for one transaction: the last entry that
-- was redacted. No foreign key to the account, because the entries in logs outlive it.
create table blankings (
    user_id   uuid not null,
    log       text not null,
    after_at  timestamptz not null,
    after_id  uuid not null,
    primary key (user_id, log)
);

-- The issuer of all tokens, as the last start set it. Clients and access tokens have stored it, so a
-- start only accepts another spelling of the same server if the installation uses it already.
create table issuer (
    is_only  boolean primary key default true check (is_only),
    url      text not null,
    -- the RP ID of all passkeys: the host that the base URL had when the first passkey was added
    rp_id    text
);
