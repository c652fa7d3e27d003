-- SAML: for each service an identity provider of ours, which signs people in there as the service asks.

-- How the provider of a service is set up. One that is switched off keeps what was set up.
create table saml_configurations (
    service_id         uuid primary key references services on delete cascade,
    org_id             uuid not null,
    enabled            boolean not null,
    entity_id          text,
    acs_url            text,
    slo_url            text,
    name_id_format     text not null,
    attribute_mapping  jsonb,  -- source to name; null: those of everybody
    sign_assertions    boolean not null,
    sign_response      boolean not null,
    updated_at         timestamptz not null,
    check (not enabled or entity_id is not null and acs_url is not null),
    check (sign_assertions or sign_response)
);

-- Nothing is signed with the key of one that is over, so that is gone.
create table saml_certificates (
    id              uuid primary key,
    org_id          uuid not null,
    service_id      uuid not null references services on delete cascade,
    certificate     text not null,  -- X.509, PEM
    private_key     bytea,          -- sealed
    valid_from      timestamptz not null,
    valid_until     timestamptz not null,
    created_at      timestamptz not null,
    deactivated_at  timestamptz,
    check ((private_key is null) = (deactivated_at is not null))
);
create unique index saml_certificates_active_key on saml_certificates (service_id) where deactivated_at is null;
create index saml_certificates_of_service on saml_certificates (service_id);

-- What a service asked a browser to sign in for. A row stays until it expires, also when it was answered: its id must not come again while
-- it is fresh (security.md X-3).
create table saml_sign_ons (
    state_hash      bytea primary key,
    browser_hash    bytea not null,  -- SHA-256 of the cookie of the browser that brought it
    org_id          uuid not null,
    service_id      uuid not null references services on delete cascade,
    request_id      text not null,
    relay_state     text,
    force_authn     boolean not null,
    is_passive      boolean not null,
    status          text,  -- why it gets no assertion, whoever is signed in
    subject         text,  -- whom it has to be about, if somebody in particular
    subject_format  text,
    context_class   text,  -- what it takes to hear of somebody who has signed in with a password, if not the usual
    created_at      timestamptz not null,
    expires_at      timestamptz not null,
    answered_at     timestamptz,
    -- Who has signed in for it over the interface, in which session, and what their browser has to show besides.
    user_id         uuid references users on delete cascade,
    session_id      uuid references sessions on delete cascade,
    ticket_hash     bytea,
    constraint saml_sign_ons_request_key unique (service_id, request_id),
    check (num_nulls(user_id, session_id, ticket_hash) in (0, 3)),
    check (num_nulls(subject, subject_format) in (0, 2))
);
create index saml_sign_ons_of_user on saml_sign_ons (user_id) where user_id is not null;
create index saml_sign_ons_of_session on saml_sign_ons (session_id) where session_id is not null;
create index saml_sign_ons_by_expiry on saml_sign_ons (expires_at);

-- What a service knows a person by who is to be nobody's but its own (format persistent).
create table saml_name_ids (
    service_id  uuid not null references services on delete cascade,
    user_id     uuid not null references users on delete cascade,
    org_id      uuid not null,
    name_id     text not null,
    created_at  timestamptz not null,
    primary key (service_id, user_id)
);
create index saml_name_ids_of_user on saml_name_ids (user_id);

-- The services that a browser's session has signed somebody in to, and as whom: what single logout ends.
create table saml_sessions (
    session_id      uuid not null references sessions on delete cascade,
    service_id      uuid not null references services on delete cascade,
    org_id          uuid not null,
    session_index   text not null,
    name_id         text not null,
    name_id_format  text not null,
    former_names    text[] not null default '{}',  -- what it was told before, the newest first
    created_at      timestamptz not null,
    primary key (session_id, service_id)
);
create index saml_sessions_of_service on saml_sessions (service_id);

-- Logouts under way, by the hash of the cookie of the browser that goes from service to service. Without a service it was our own page that
-- began it.
create table saml_logouts (
    id              uuid primary key,
    browser_hash    bytea not null constraint saml_logouts_browser_key unique,
    org_id          uuid,
    service_id      uuid references services on delete cascade,
    request_id      text,
    relay_state     text,
    name_id         text,     -- whose session the service wants to end; null where that can be nobody
    name_id_format  text,
    session_index   text[],
    after           text,     -- where our own page goes on then
    user_id         uuid references users on delete cascade,  -- whose session it was
    begun_at        timestamptz,
    matched         boolean not null default false,  -- whether it was the browser's own session
    is_partial      boolean not null default false,  -- a service cannot be told, or did not say that it was done
    created_at      timestamptz not null,
    expires_at      timestamptz not null,
    check (num_nulls(org_id, service_id, request_id) in (0, 3)),
    check (num_nulls(name_id, name_id_format) in (0, 2))
);
create index saml_logouts_of_service on saml_logouts (service_id) where service_id is not null;
create index saml_logouts_of_user on saml_logouts (user_id) where user_id is not null;
create index saml_logouts_by_expiry on saml_logouts (expires_at);

create table saml_logout_requests (
    request_id      text primary key,  -- of ours, random
    logout_id       uuid not null references saml_logouts on delete cascade,
    org_id          uuid not null,
    service_id      uuid not null references services on delete cascade,
    session_index   text not null,
    name_id         text not null,
    name_id_format  text not null,
    sent_at         timestamptz,
    answered_at     timestamptz
);
create index saml_logout_requests_of_logout on saml_logout_requests (logout_id);
create index saml_logout_requests_of_service on saml_logout_requests (service_id);
