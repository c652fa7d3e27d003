-- Services (applications), their plans, API keys, users and numbers of sign-ins.

create table services (
    id                                     uuid primary key,
    org_id                                 uuid not null references organizations on delete cascade,
    slug                                   text not null,
    name                                   text not null,
    service_type                           text not null
        check (service_type in ('web', 'spa', 'mobile', 'desktop', 'api')),
    client_id                              uuid not null constraint services_client_id_key unique,
    client_secret_hash                     bytea,  -- SHA-256; public clients have none
    codehost_scopes                        text[],  -- these three: null for the platform's scopes
    websuite_scopes                        text[],
    officesuite_scopes                     text[],
    redirect_uris                          text[] not null,
    device_activation_uri                  text,
    -- these two are kept by the statements that add or remove
    user_count                             bigint not null default 0,
    subscription_count                     bigint not null default 0,
    created_at                             timestamptz not null,
    updated_at                             timestamptz not null,
    -- a confidential application may redeem a code with PKCE instead of its secret
    pkce_without_secret                    boolean not null default false,
    -- who may use the service
    access_policy                          text not null default 'anyone'
        constraint services_access_policy check (access_policy in ('anyone', 'members', 'assigned')),
    -- under the policy `anyone`, SAML also admits users who enrolled themselves
    saml_self_enrolled                     boolean not null default false,
    launch_url                             text,  -- where "My applications" opens the service
    scim_external_id                       text,  -- the id that a directory gave to the service's group
    email_sign_in                          boolean,  -- null: as on the platform
    -- confirmed members are not asked for their consent
    is_trusted                             boolean not null default false,
    -- the claims of granted scopes are in the ID token, too
    id_token_claims                        boolean not null default true,
    post_logout_redirect_uris              text[] not null default '{}',
    backchannel_logout_uri                 text,
    former_secret_hash                     bytea,  -- SHA-256; accepted until the time below
    former_secret_expires_at               timestamptz,
    jwks                                   jsonb,  -- an array of public keys (RFC 7517)
    jwks_uri                               text,
    accepts_token_endpoint_audience        boolean not null default false,
    -- null: as on the platform; the same for refresh tokens
    access_token_seconds                   integer,
    refresh_token_seconds                  integer,
    enterprise                             boolean not null default false,
    required_acr                           text check (required_acr in ('mfa')),
    require_pushed_authorization_requests  boolean not null default false,
    dpop_bound_access_tokens               boolean not null default false,
    always_ask_consent                     boolean not null default false,
    -- id of the present credentials, which tokens of the application name; new keys, or a rotation
    -- without overlap, give a new id
    credential_id                          uuid not null default gen_random_uuid(),
    constraint services_org_slug_key unique (org_id, slug),
    check ((client_secret_hash is not null) = (service_type in ('web', 'api'))),
    constraint services_former_secret_check
        check ((former_secret_hash is null) = (former_secret_expires_at is null)),
    constraint services_keys_check check (jwks is null or jwks_uri is null)
);
create index services_by_age on services (org_id, created_at, id);

-- A removed plan stays for the ended subscriptions that had it.
create table plans (
    id                uuid primary key,
    org_id            uuid not null,
    service_id        uuid not null references services on delete cascade,
    name              text not null,
    price_cents       integer not null check (price_cents >= 0),
    currency          text not null,
    features          text[] not null,
    billing_price_id  text,
    created_at        timestamptz not null,
    updated_at        timestamptz not null,
    removed_at        timestamptz
);
create index plans_of_service on plans (service_id, created_at, id) where removed_at is null;
create index plans_with_removed on plans (service_id);

create table api_keys (
    id            uuid primary key,
    org_id        uuid not null,
    service_id    uuid not null references services on delete cascade,
    name          text not null,
    prefix        text not null,
    key_hash      bytea not null constraint api_keys_hash_key unique,  -- SHA-256 of the whole key
    permissions   text[] not null check (cardinality(permissions) > 0),
    last_used_at  timestamptz,  -- to the minute
    expires_at    timestamptz,
    created_by    uuid not null,  -- no foreign key: the account may be gone
    created_at    timestamptz not null,
    announced     smallint  -- the days before the end that were announced last
);
create index api_keys_by_age on api_keys (service_id, created_at, id);
create index api_keys_by_expiry on api_keys (expires_at) where expires_at is not null;

-- The users of a service: they signed in to it, or an API key created them. Rows are only written while
-- the service is locked, so that a service that is being deleted gets no users.
--
-- No foreign key to the service: the housekeeper deletes the rows (docs/adr/0006). The foreign key to
-- the account has no cascade, because the rows are counted. It keeps the address and `deactivated` equal
-- to the account's: a search reads all users of a service, from the index alone.
create table service_users (
    service_id      uuid not null,
    user_id         uuid not null,
    org_id          uuid not null,
    email           text not null,
    deactivated     boolean not null,
    created_at      timestamptz not null,
    first_login_at  timestamptz,
    last_login_at   timestamptz,
    -- came only by SAML as a member, so that access ends with the membership
    by_membership   boolean not null default false,
    -- how the user came to the service
    enrolled_by     text not null default 'self' constraint service_users_enrolled_by
        check (enrolled_by in ('self', 'subscription', 'directory', 'admin', 'api_key')),
    primary key (service_id, user_id),
    constraint service_users_user_fkey foreign key (user_id, email, deactivated) references users (id, email, deactivated)
        on update cascade
);
create index service_users_by_age on service_users (service_id, created_at, user_id) include (email, deactivated);
create index service_users_deactivated on service_users (service_id) where deactivated;
create index service_users_of_organization on service_users (org_id, user_id);
create index service_users_of_user on service_users (user_id);
create index service_users_assigned on service_users (service_id, created_at, user_id)
    where enrolled_by in ('directory', 'admin', 'api_key');

-- The end users of an organization: one row per user of any of its services. A sign-in changes nothing here.
create table end_users (
    org_id       uuid not null,
    user_id      uuid not null,
    email        text not null,
    deactivated  boolean not null,
    created_at   timestamptz not null,
    primary key (org_id, user_id),
    constraint end_users_user_fkey foreign key (user_id, email, deactivated) references users (id, email, deactivated)
        on update cascade
);
create index end_users_by_age on end_users (org_id, created_at, user_id) include (email, deactivated);
create index end_users_deactivated on end_users (org_id) where deactivated;
create index end_users_of_user on end_users (user_id);

create table end_user_totals (
    org_id  uuid primary key,
    total   bigint not null
);

-- The number of sign-ins to a service by day (UTC): the sum over the shards. The shard is random, so that
-- concurrent sign-ins rarely wait for each other. The housekeeper merges past days into shard 0.
create table login_totals (
    org_id      uuid not null,
    service_id  uuid not null,
    day         date not null,
    provider    text not null,
    shard       smallint not null,
    total       bigint not null,
    primary key (org_id, service_id, day, provider, shard)
);
create index login_totals_spread on login_totals (day) where shard > 0;

-- The number of sign-ins of members to the platform, per organization and day (UTC). There are no shards,
-- because members of an organization share the row of its audit total anyway.
create table member_login_totals (
    org_id    uuid not null,
    day       date not null,
    provider  text not null,
    total     bigint not null,
    primary key (org_id, day, provider)
);
