-- The second factor, devices, browser sessions, impersonation, linked identities, and what privacy asks for.

-- A secret that is set up and, once `users.mfa_enabled_at` says so, asked for. An account has one row at most.
create table mfa (
    user_id     uuid primary key references users on delete cascade,
    secret      bytea not null,  -- base32, sealed
    setup_at    timestamptz not null,  -- a secret that nobody confirms is good for a while only
    last_step   bigint,          -- the time step of the newest code that was taken: RFC 6238 section 5.2 wants each of them once
    codes_salt  bytea            -- one for all codes of a set, so that an attempt costs one hash
);
create index mfa_pending on mfa (setup_at) where last_step is null;
create table backup_codes (
    user_id    uuid not null references users on delete cascade,
    code_hash  bytea not null,   -- Argon2id with the salt of the set
    used_at    timestamptz,
    primary key (user_id, code_hash)
);
-- The log of the second factor, apart from those of organizations (organizations.md section 6.3).
create table mfa_events (
    id               uuid primary key,
    user_id          uuid not null references users on delete cascade,
    event_type       text not null,
    success          boolean not null,
    actor_id         uuid,  -- whose doing it was, if not the person's own
    impersonator_id  uuid,
    reason           text,
    address          text,
    agent            text,
    created_at       timestamptz not null
);
create index mfa_events_of_user on mfa_events (user_id, created_at desc, id desc);
create index mfa_events_by_type on mfa_events (event_type, created_at desc) include (user_id);

-- A right password that waits for the second factor. A row is gone once it was used, or must not be used any more.
create table pre_auths (
    id          uuid primary key,  -- also the `jti` and the `sid` of the token
    user_id     uuid not null references users on delete cascade,
    service_id  uuid,              -- what it is a sign-in to, if not the platform itself
    provider    text not null,     -- how the first factor was shown, as in login_events
    failures    integer not null default 0,
    created_at  timestamptz not null,
    expires_at  timestamptz not null
);
create index pre_auths_of_user on pre_auths (user_id);
create index pre_auths_by_expiry on pre_auths (expires_at);

create table devices (
    id                uuid primary key,
    user_id           uuid not null references users on delete cascade,
    client_hash       bytea,  -- SHA-256 of the id that the client keeps; null: recognised by what it says of itself
    name              text not null,
    device_type       text not null check (device_type in ('browser', 'mobile', 'desktop', 'cli')),
    browser           text not null,
    browser_version   text,
    os                text not null,
    os_version        text,
    last_used_at      timestamptz not null,
    last_ip           text,
    city              text,
    country           text,
    risk_score        smallint not null check (risk_score between 0 and 100),  -- in hundredths, of the last login
    risk_factors      text[] not null,
    mfa_at            timestamptz,  -- the last time that somebody showed the second factor on it
    trust_hash        bytea constraint devices_trust_key unique,  -- SHA-256 of the trust token
    trust_expires_at  timestamptz,
    created_at        timestamptz not null,
    updated_at        timestamptz not null,
    revoked_at        timestamptz,
    check ((trust_hash is null) = (trust_expires_at is null))
);
create index devices_of_user on devices (user_id, last_used_at desc, id desc) where revoked_at is null;
create unique index devices_one_client on devices (user_id, client_hash) where client_hash is not null and revoked_at is null;

-- Sessions of browsers on our own pages have the hash of a cookie where others have refresh tokens. Somebody's session as somebody else ends
-- with the one that it was begun in.
alter table sessions
    add column device_id                uuid,
    add column browser_hash             bytea constraint sessions_browser_key unique,
    add column impersonator_session_id  uuid;

alter table login_events
    add column risk_score    smallint not null default 0 check (risk_score between 0 and 100),
    add column risk_factors  text[] not null default '{}',
    add column city          text,
    add column country       text;
-- Where somebody has signed in from before, however long ago.
create index login_events_by_place on login_events (user_id, country, coalesce(city, '')) where success and country is not null;

-- What a provider gave with an identity, sealed, and tickets to link one: good once, for a minute, in the browser that opens them.
alter table identities
    add column access_token      bytea,
    add column refresh_token     bytea,
    add column token_expires_at  timestamptz,
    add column scopes            text[];
-- A person has one at most of each provider in each context; this also finds all of a person's.
drop index identities_of_user;
alter table identities
    add constraint identities_provider_key unique nulls not distinct (user_id, provider, service_id);
create table link_tickets (
    token_hash  bytea primary key,
    user_id     uuid not null references users on delete cascade,
    session_id  uuid not null references sessions on delete cascade,
    service_id  uuid references services on delete cascade,
    provider    text not null check (provider in ('codehost', 'websuite', 'officesuite')),
    created_at  timestamptz not null,
    expires_at  timestamptz not null
);
create index link_tickets_of_user on link_tickets (user_id);
create index link_tickets_of_session on link_tickets (session_id);
create index link_tickets_of_service on link_tickets (service_id) where service_id is not null;
create index link_tickets_by_expiry on link_tickets (expires_at);

create table passkeys (
    id               uuid primary key,
    user_id          uuid not null references users on delete cascade,
    name             text not null,
    credential_id    bytea not null constraint passkeys_credential_key unique,
    public_key       bytea not null,
    sign_count       bigint not null,
    aaguid           uuid not null,
    backup_eligible  boolean not null,
    created_at       timestamptz not null,
    last_used_at     timestamptz
);
create index passkeys_of_user on passkeys (user_id);

-- The log of what was done for somebody's privacy. It outlives whoever asked for it.
create table privacy_log (
    id               uuid primary key,
    event_type       text not null,
    user_id          uuid not null,
    actor_id         uuid not null,
    address          text,
    agent            text,
    created_at       timestamptz not null
);

-- Which addresses an account had before: whoever wants to be unknown is not to be known by these either.
create table former_addresses (
    user_id  uuid not null references users on delete cascade,
    email    text not null,
    until    timestamptz not null,
    primary key (user_id, email)
);
-- Where an anonymization goes on in a log that is too long for one transaction: the last entry that was blanked. Empty, but for minutes. It
-- does not point to the account, since what the person did in logs outlives that.
create table blankings (
    user_id   uuid not null,
    log       text not null,
    after_at  timestamptz not null,
    after_id  uuid not null,
    primary key (user_id, log)
);

-- What somebody's anonymization looks for, the newest first, to go on after any of it: what they did, in whatever log, and what was sent to their address.
create index privacy_log_of_actor on privacy_log (actor_id, created_at desc, id desc);
create index mfa_events_of_actor on mfa_events (actor_id, created_at desc, id desc) where actor_id is not null;
create index mfa_events_of_impersonator on mfa_events (impersonator_id, created_at desc, id desc) where impersonator_id is not null;
create index audit_log_of_actor on audit_log (actor_id, created_at desc, id desc) where actor_id is not null;
create index audit_log_of_impersonator on audit_log (impersonator_id, created_at desc, id desc) where impersonator_id is not null;
drop index invitations_of_email;
create index invitations_of_email on invitations (email, status);
drop index mails_with_token;
create index mails_to_address on mails (address, token_at);

-- Platform owners look people up, the newest first. With the address, because a search for a part of it looks at every account there is, and
-- the index alone shall answer it.
create index users_by_age on users (created_at desc, id desc) include (email);
