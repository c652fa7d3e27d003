-- OAuth, OpenID Connect and SAML.

-- Codes that applications exchange for tokens (RFC 6749 section 4.1). A used code stays for a while: a
-- second use ends the session that the first one created.
create table authorization_codes (
    code_hash           bytea primary key,
    org_id              uuid,
    -- null: the frontend of the platform
    service_id          uuid references services on delete cascade,
    user_id             uuid not null references users on delete cascade,
    browser_session_id  uuid not null references sessions on delete cascade,
    redirect_uri        text,  -- null if the request had none
    code_challenge      text,
    created_at          timestamptz not null,
    expires_at          timestamptz not null,
    session_id          uuid,  -- that the first use created
    scope               text[],
    id_token_claims     text[],
    userinfo_claims     text[],
    resource            text,
    nonce               text,
    key_thumbprint      text,  -- of the key that may redeem the code (RFC 9449 section 10)
    api_resource_id     uuid,  -- as in sessions
    api_scope           text[],
    asked_scope         text[],
    asked_acr           text[],  -- as in sessions
    check ((org_id is null) = (service_id is null))
);
create index authorization_codes_of_service on authorization_codes (service_id) where service_id is not null;
create index authorization_codes_of_user on authorization_codes (user_id);
create index authorization_codes_of_session on authorization_codes (browser_session_id);
create index authorization_codes_by_expiry on authorization_codes (expires_at);

-- Devices that wait until a user signs them in from elsewhere (RFC 8628). The approving session says how
-- the user had signed in. If it ends, the code is void.
create table device_codes (
    device_code_hash  bytea primary key,
    user_code_hash    bytea not null constraint device_codes_user_code_key unique,
    org_id            uuid not null,
    service_id        uuid not null references services on delete cascade,
    code_challenge    text,
    address           text,
    agent             text,
    status            text not null check (status in ('pending', 'approved', 'denied', 'redeemed')),
    session_id        uuid references sessions on delete cascade,  -- the session that approved it
    failures          integer not null default 0,
    interval_seconds  integer not null,
    polled_at         timestamptz,
    created_at        timestamptz not null,
    expires_at        timestamptz not null,
    scope             text[],
    resource          text,
    api_resource_id   uuid,
    api_scope         text[],
    asked_scope       text[],
    check ((status in ('approved', 'redeemed')) = (session_id is not null))
);
create index device_codes_of_service on device_codes (service_id);
create index device_codes_of_session on device_codes (session_id) where session_id is not null;
create index device_codes_by_expiry on device_codes (expires_at);

-- Authorization requests that clients pushed (RFC 9126), by the hash of their request_uri.
create table pushed_requests (
    request_hash  bytea primary key,
    -- null: the frontend of the platform
    org_id        uuid references organizations on delete cascade,
    service_id    uuid references services on delete cascade,
    parameters    text not null,  -- as a query string
    created_at    timestamptz not null,
    expires_at    timestamptz not null,  -- moves forward once, when a browser presents the request
    browser_hash  bytea,  -- of the browser that presented it first
    used_at       timestamptz  -- when a code or an error went to the client
);
create index pushed_requests_by_expiry on pushed_requests (expires_at);
create index pushed_requests_by_service on pushed_requests (service_id);
create index pushed_requests_by_organization on pushed_requests (org_id);

-- The assertions with which clients authenticated, so that each works once. The client may be gone.
create table client_assertions (
    client_id   uuid not null,
    jti_hash    bytea not null,  -- SHA-256
    expires_at  timestamptz not null,
    primary key (client_id, jti_hash)
);
create index client_assertions_by_expiry on client_assertions (expires_at);

-- The scopes that users allowed an application.
create table consents (
    user_id                uuid not null references users on delete cascade,
    org_id                 uuid not null,
    service_id             uuid not null references services on delete cascade,
    scope                  text[] not null,
    granted_at             timestamptz not null,
    -- what the consent to an external client covers: the redirect URIs that were used, and how it authenticates
    redirect_uris          text[] not null default '{}',
    client_authentication  text,
    primary key (user_id, service_id)
);
create index consents_of_service on consents (service_id);

-- The scopes of an API resource that a user allowed an application. They belong to the consent to the
-- application, and end with it.
create table api_consents (
    user_id      uuid not null,
    org_id       uuid not null,
    service_id   uuid not null,
    resource_id  uuid not null references api_resources on delete cascade,
    scope        text[] not null,
    granted_at   timestamptz not null,
    primary key (user_id, service_id, resource_id),
    foreign key (user_id, service_id) references consents on delete cascade
);
create index api_consents_of_resource on api_consents (resource_id);

-- The SAML identity provider of a service. A disabled one keeps its settings.
create table saml_configurations (
    service_id         uuid primary key references services on delete cascade,
    org_id             uuid not null,
    enabled            boolean not null,
    entity_id          text,
    acs_url            text,
    slo_url            text,
    name_id_format     text not null,
    attribute_mapping  jsonb,  -- source to name; null: the default attributes
    sign_assertions    boolean not null,
    sign_response      boolean not null,
    updated_at         timestamptz not null,
    -- for signed LogoutRequests (PEM); a signed one without SessionIndex ends the user's sessions
    -- in all browsers
    slo_certificate    text,
    -- how an attribute is written, by its name: the format of the name, and the text that joins several values
    attribute_formats  jsonb,
    slo_response_url   text,  -- where logout responses go, if not to `slo_url` (`ResponseLocation` of the metadata)
    check (not enabled or entity_id is not null and acs_url is not null),
    check (sign_assertions or sign_response)
);

-- An active certificate has a key, and so do the next one and, for some days, the previous one. The key
-- of an inactive certificate is deleted.
create table saml_certificates (
    id              uuid primary key,
    org_id          uuid not null,
    service_id      uuid not null references services on delete cascade,
    certificate     text not null,  -- X.509, PEM
    private_key     bytea,  -- sealed
    valid_from      timestamptz not null,
    valid_until     timestamptz not null,
    created_at      timestamptz not null,
    deactivated_at  timestamptz,
    standby         text check (standby in ('next', 'previous')),
    kept_until      timestamptz,  -- of the previous certificate
    constraint saml_certificates_key_check
        check ((private_key is null) = (deactivated_at is not null and standby is null)),
    constraint saml_certificates_standby_is_inactive check (standby is null or deactivated_at is not null),
    constraint saml_certificates_kept_check check ((kept_until is null) = (standby is distinct from 'previous'))
);
create unique index saml_certificates_active_key on saml_certificates (service_id) where deactivated_at is null;
create index saml_certificates_of_service on saml_certificates (service_id);
-- The overview of an organization counts the certificates that expire soon.
create index saml_certificates_by_expiry on saml_certificates (org_id, valid_until)
    where deactivated_at is null;
create unique index saml_certificates_standby_key on saml_certificates (service_id, standby)
    where standby is not null;
create index saml_certificates_by_end on saml_certificates (kept_until) where kept_until is not null;

-- The name of a user at one service only (format persistent).
create table saml_name_ids (
    service_id  uuid not null references services on delete cascade,
    user_id     uuid not null references users on delete cascade,
    org_id      uuid not null,
    name_id     text not null,
    created_at  timestamptz not null,
    primary key (service_id, user_id)
);
create index saml_name_ids_of_user on saml_name_ids (user_id);

-- The services that a browser session has signed a user in to, and under which name. Single logout ends
-- these.
create table saml_sessions (
    session_id      uuid not null references sessions on delete cascade,
    service_id      uuid not null references services on delete cascade,
    org_id          uuid not null,
    session_index   text not null,
    name_id         text not null,
    name_id_format  text not null,
    former_names    text[] not null default '{}',  -- earlier names at the service, newest first
    created_at      timestamptz not null,
    primary key (session_id, service_id)
);
create index saml_sessions_of_service on saml_sessions (service_id);
-- A LogoutRequest without SessionIndex names the user only.
create index saml_sessions_by_name on saml_sessions (service_id, name_id);

-- Logouts in progress, by the hash of the browser's cookie. A browser has one at a time. Without a
-- service, our own page started it. No foreign key to the service: a logout outlives the services and
-- users that it is about. The rows expire after a quarter of an hour.
create table saml_logouts (
    id            uuid primary key,
    browser_hash  bytea not null constraint saml_logouts_browser_key unique,
    org_id        uuid,
    service_id    uuid,
    request_id    text,
    relay_state   text,
    after         text,  -- where our own page continues
    is_partial    boolean not null default false,  -- a service cannot be notified, or did not confirm
    created_at    timestamptz not null,
    expires_at    timestamptz not null,
    check (num_nulls(org_id, service_id, request_id) in (0, 3))
);
create index saml_logouts_by_expiry on saml_logouts (expires_at);

-- The requests of a logout to its services. A logout can be about sessions of several users, so each
-- request names its user.
create table saml_logout_requests (
    request_id      text primary key,  -- ours, random
    logout_id       uuid not null references saml_logouts on delete cascade,
    org_id          uuid not null,
    service_id      uuid not null,
    session_index   text not null,
    name_id         text not null,
    name_id_format  text not null,
    sent_at         timestamptz,
    answered_at     timestamptz,
    user_id         uuid,  -- the user of the session
    -- all names by which the service may send the same request
    former_names    text[] not null default '{}',
    -- a browser that returns without an answer is sent to the service a second time
    times_sent      smallint not null default 0
);
create index saml_logout_requests_of_logout on saml_logout_requests (logout_id);
create index saml_logout_requests_of_user on saml_logout_requests (user_id);
