-- Sign-in through identity providers, codes for applications, and devices that are signed in from elsewhere.

-- How the session was begun, as login_events has it. A session of an application that one of our grants gave says which, since refreshing
-- what a device has been given needs no secret (decisions, point 92).
alter table sessions
    add column provider    text,
    add column grant_type  text check (grant_type in ('authorization_code', 'device_code'));

-- Whether a confidential application may do without its secret where it meets a challenge (decisions, point 92).
alter table services add column pkce_without_secret boolean not null default false;

-- An identity is provider, issuer and subject: an operator who points a provider to another issuer points it to other people.
alter table identities
    add column issuer text not null default '',
    -- Until then somebody is asking the provider for new tokens in the place of these, and nobody else does.
    add column renewing_until timestamptz,
    drop constraint identities_subject_key,
    add constraint identities_subject_key unique nulls not distinct (provider, issuer, provider_user_id, service_id);

-- A browser that was sent to a provider, by the hash of the state that it has to come back with. Good once.
create table provider_states (
    state_hash    bytea primary key,
    browser_hash  bytea not null,  -- SHA-256 of the cookie of the browser that started it
    provider      text not null check (provider in ('codehost', 'websuite', 'officesuite')),
    org_id        uuid,
    service_id    uuid references services on delete cascade,  -- null: on the platform itself
    user_id       uuid references users on delete cascade,     -- who links an account; null: somebody signs in
    session_id    uuid references sessions on delete cascade,  -- and the session in which they started that
    scopes        text[],          -- what the service asks the provider for; null: what the platform does
    after         text not null,   -- where it goes on, on our own pages
    created_at    timestamptz not null,
    expires_at    timestamptz not null,
    check ((org_id is null) = (service_id is null)),
    check ((user_id is null) = (session_id is null))
);
create index provider_states_of_service on provider_states (service_id) where service_id is not null;
create index provider_states_of_user on provider_states (user_id) where user_id is not null;
create index provider_states_of_session on provider_states (session_id) where session_id is not null;
create index provider_states_by_expiry on provider_states (expires_at);

-- Codes that applications exchange for tokens (RFC 6749 section 4.1). One that was used stays for a while: a second use of it ends what the
-- first one gave.
create table authorization_codes (
    code_hash           bytea primary key,
    org_id              uuid,
    service_id          uuid references services on delete cascade,  -- null: the frontend's, for the platform itself
    user_id             uuid not null references users on delete cascade,
    browser_session_id  uuid not null references sessions on delete cascade,
    redirect_uri        text,      -- null if the request left it out
    code_challenge      text,
    created_at          timestamptz not null,
    expires_at          timestamptz not null,
    session_id          uuid,      -- what it gave
    check ((org_id is null) = (service_id is null))
);
create index authorization_codes_of_service on authorization_codes (service_id) where service_id is not null;
create index authorization_codes_of_user on authorization_codes (user_id);
create index authorization_codes_of_session on authorization_codes (browser_session_id);
create index authorization_codes_by_expiry on authorization_codes (expires_at);

-- Devices that wait for somebody to sign them in from elsewhere (RFC 8628). How the person had signed in who approves is what their session
-- says; when that one ends, nothing comes of it any more.
create table device_codes (
    device_code_hash  bytea primary key,
    user_code_hash    bytea not null constraint device_codes_user_code_key unique,
    org_id            uuid not null,
    service_id        uuid not null references services on delete cascade,
    code_challenge    text,
    address           text,
    agent             text,
    status            text not null check (status in ('pending', 'approved', 'denied', 'redeemed')),
    session_id        uuid references sessions on delete cascade,  -- in which somebody approved it
    failures          integer not null default 0,
    interval_seconds  integer not null,
    polled_at         timestamptz,
    created_at        timestamptz not null,
    expires_at        timestamptz not null,
    check ((status in ('approved', 'redeemed')) = (session_id is not null))
);
create index device_codes_of_service on device_codes (service_id);
create index device_codes_of_session on device_codes (session_id) where session_id is not null;
create index device_codes_by_expiry on device_codes (expires_at);
