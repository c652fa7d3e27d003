-- Accounts, sessions, mails and the records that every later change adds to.
-- Identifiers are random UUIDs made by the application. Times are timestamptz, written in UTC. "Now" always comes from the application.
-- Floor: PostgreSQL 15, no extension.

create table organizations (
    id          uuid primary key,
    slug        text not null constraint organizations_slug_key unique,
    name        text not null,
    status      text not null check (status in ('pending', 'active', 'suspended', 'rejected')),
    created_at  timestamptz not null
);

create table users (
    id                 uuid primary key,
    email              text not null constraint users_email_key unique,  -- in canonical form, which makes it unique without case
    email_verified_at  timestamptz,  -- null again after a change of address ...
    first_verified_at  timestamptz,  -- ... while this stays
    password_hash      text,
    is_platform_owner  boolean not null default false,
    mfa_enabled_at     timestamptz,
    origin             text not null check (origin in ('platform', 'api_key', 'scim', 'sign_up')),
    origin_org_id      uuid references organizations on delete set null,
    deactivated_at     timestamptz,
    anonymized_at      timestamptz,
    created_at         timestamptz not null,
    updated_at         timestamptz not null
);
create index users_platform_owners on users (id) where is_platform_owner;
create index users_never_verified on users (created_at) where first_verified_at is null;

create table memberships (
    id          uuid primary key,
    org_id      uuid not null references organizations on delete cascade,
    user_id     uuid not null references users on delete cascade,
    role        text not null check (role in ('owner', 'admin', 'member')),
    created_at  timestamptz not null,
    constraint memberships_org_user_key unique (org_id, user_id)
);
create unique index memberships_one_owner on memberships (org_id) where role = 'owner';
create index memberships_of_user on memberships (user_id);

create table sessions (
    id          uuid primary key,
    user_id     uuid not null references users on delete cascade,
    org_id      uuid references organizations on delete cascade,  -- the organization selected last
    created_at  timestamptz not null,
    expires_at  timestamptz not null,  -- slides with each refresh
    ends_at     timestamptz not null,  -- does not
    ended_at    timestamptz,
    address     text,
    agent       text
);
create index sessions_of_user on sessions (user_id) where ended_at is null;
create index sessions_of_organization on sessions (org_id) where org_id is not null and ended_at is null;
create index sessions_by_end on sessions (least(ended_at, expires_at));

-- A rotated token stays as long as its session, so that its reuse is recognised.
create table refresh_tokens (
    token_hash  bytea primary key,
    session_id  uuid not null references sessions on delete cascade,
    generation  integer not null,
    rotated_at  timestamptz,
    created_at  timestamptz not null
);
create index refresh_tokens_of_session on refresh_tokens (session_id, generation);

create table one_time_tokens (
    purpose     text not null,
    token_hash  bytea not null,
    user_id     uuid not null references users on delete cascade,
    email       text not null,  -- the address it was sent to, which it proves
    created_at  timestamptz not null,
    expires_at  timestamptz not null,
    used_at     timestamptz,
    primary key (purpose, token_hash)
);
create index one_time_tokens_of_user on one_time_tokens (user_id, purpose);
create index one_time_tokens_by_expiry on one_time_tokens (expires_at);

create table login_events (
    id          uuid primary key,
    user_id     uuid not null references users on delete cascade,
    session_id  uuid,
    org_id      uuid references organizations on delete cascade,
    provider    text not null,
    success     boolean not null,
    address     text,
    agent       text,
    created_at  timestamptz not null
);
create index login_events_of_user on login_events (user_id, created_at desc);

create table mails (
    id            uuid primary key,
    kind          text not null,
    address       text not null,
    token         bytea,        -- sealed; null before it is made and after the mail has gone out
    token_at      timestamptz,  -- when it was made: what the limit per recipient counts
    claims        integer not null default 0,
    attempts      integer not null default 0,
    last_failure  text,
    created_at    timestamptz not null,
    due_at        timestamptz not null,
    finished_at   timestamptz,
    outcome       text check (outcome in ('sent', 'dropped', 'given_up')),
    check ((finished_at is null) = (outcome is null))
);
create index mails_due on mails (due_at) where finished_at is null;
create index mails_with_token on mails (address, token_at) where token_at is not null;
create index mails_finished on mails (finished_at) where finished_at is not null;

-- What happened, for webhooks to tell. Without organization there is nobody to tell.
create table events (
    id               uuid primary key,
    org_id           uuid references organizations on delete cascade,
    name             text not null,
    actor_id         uuid,
    impersonator_id  uuid,
    target_id        text not null,
    data             jsonb not null,
    created_at       timestamptz not null
);
create index events_by_age on events (created_at);

-- Append-only. An entry without organization belongs to the platform's own log.
create table audit_log (
    id               uuid primary key,
    org_id           uuid references organizations on delete cascade,
    action           text not null,
    target_type      text not null,
    target_id        text not null,
    actor_id         uuid,  -- null is the service itself, or somebody who is not signed in
    impersonator_id  uuid,
    address          text,
    agent            text,
    success          boolean not null default true,
    details          jsonb not null,
    created_at       timestamptz not null
);
create index audit_log_of_organization on audit_log (org_id, created_at desc, id desc);

-- Unlogged: a crash of the database empties these two, which costs nothing but counts; a clean stop keeps them.
create unlogged table rates (
    client      text primary key,
    tats        jsonb not null,  -- bucket name -> theoretical arrival time in seconds since the epoch (GCRA)
    wait        double precision not null,  -- the verdict on the latest request: 0, or the seconds until it would be admitted
    expires_at  timestamptz not null
);
create index rates_by_expiry on rates (expires_at);

create unlogged table guesses (
    secret         text not null,
    subject        bytea not null,
    failures       integer not null,
    refused        boolean not null,  -- the verdict on the latest guess
    started_at     timestamptz not null,
    blocked_until  timestamptz,
    expires_at     timestamptz not null,
    primary key (secret, subject)
);
create index guesses_by_expiry on guesses (expires_at);

create table signing_keys (
    kid          text primary key,
    private_key  bytea not null,  -- PKCS #8 in PEM, sealed
    created_at   timestamptz not null,
    retires_at   timestamptz
);
create unique index signing_keys_one_active on signing_keys ((true)) where retires_at is null;

-- Work that one process at a time may do. A row rather than a session lock, so that it survives a connection pooler.
create table leases (
    name        text primary key,
    holder      uuid not null,
    expires_at  timestamptz not null
);
