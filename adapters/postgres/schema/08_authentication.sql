-- Sessions, sign-ins, sign-in policies, tokens and linked identities.

-- A session of the platform or of an application. Its context has no foreign keys: they would lock the
-- organization after the account, against the lock order (docs/adr/0005).
create table sessions (
    id                       uuid primary key,
    user_id                  uuid not null references users on delete cascade,
    org_id                   uuid,  -- the organization selected last, or that of the service
    created_at               timestamptz not null,
    expires_at               timestamptz not null,  -- moves with each refresh
    ends_at                  timestamptz not null,  -- never moves
    ended_at                 timestamptz,
    address                  text,
    agent                    text,
    impersonator_id          uuid references users on delete cascade,
    service_id               uuid,  -- null: of the platform
    device_id                uuid,
    -- of the cookie, for browser sessions on our own pages, which have no refresh tokens
    browser_hash             bytea constraint sessions_browser_key unique,
    impersonator_session_id  uuid,  -- an impersonation ends with the session in which it was started
    -- for sessions of applications: refreshing a device's session needs no secret
    grant_type               text check (grant_type in ('authorization_code', 'device_code')),
    -- The session began before the second factor was switched on. It may change the user's own account,
    -- but start no sign-in elsewhere.
    mfa_missing              boolean not null default false,
    -- The only organization in which the impersonation acts; null: all. No foreign key: deleting
    -- the organization must not lift the limit.
    impersonated_in          uuid,
    authenticated_at         timestamptz,  -- the session's last sign-in; null: when the session was created
    browser_session_id       uuid,  -- in which the user authorized the application
    scope                    text[],  -- null: the application did not ask for OpenID Connect
    id_token_claims          text[],  -- the names in the parameter `claims`; the same for userinfo
    userinfo_claims          text[],
    resource                 text,  -- the audience of the access tokens (RFC 8707)
    -- false if an identity provider may have authenticated the user earlier
    fresh                    boolean not null default true,
    -- of the key that refresh tokens of a public client are bound to (RFC 9449 section 5)
    key_thumbprint           text,
    -- no foreign key: a session outlives the API resource, and cannot be refreshed then
    api_resource_id          uuid,
    api_scope                text[],  -- the granted scopes of the API resource
    -- whether a personal access token is backed by this session
    personal_token           boolean not null default false,
    -- All scopes that the authorization request asked for; `scope` and `api_scope` have the granted
    -- ones. Null without such a request.
    asked_scope              text[],
    -- The proofs of the session's last sign-in, and their joint strength. Null: the user did not sign in,
    -- as in an impersonation.
    proofs                   jsonb,
    strength                 smallint,
    -- the authentication classes that the application accepted, if it asked for classes (OpenID Connect Core
    -- section 5.5.1.1)
    asked_acr                text[],
    -- The only organization in which the session is good, because it began at a connection of this
    -- organization. Null: the session has a proof of the account's own. No foreign key: deleting the
    -- organization must not lift the restriction.
    restricted_to            uuid,
    risk_is_high             boolean not null default false  -- of the sign-in
);
create index sessions_by_end on sessions (least(ended_at, expires_at));
create index sessions_of_impersonator on sessions (impersonator_id) where impersonator_id is not null;
create index sessions_of_user on sessions (user_id);
create index sessions_of_browser_session on sessions (browser_session_id)
    where browser_session_id is not null and ended_at is null;
create index impersonations_of_session on sessions (impersonator_session_id)
    where impersonator_session_id is not null and ended_at is null;

-- The end of a browser session ends the sessions of the applications that the user authorized in it,
-- except those with offline access. It happens in the same statement, whatever ends the session.
create function end_application_sessions() returns trigger language plpgsql as $$
begin
    update sessions set ended_at = new.ended_at
    where browser_session_id = new.id and ended_at is null and scope is not null and not 'offline_access' = any(scope);
    return null;
end $$;
create trigger browser_session_ended after update of ended_at on sessions
    for each row when (old.ended_at is null and new.ended_at is not null and new.browser_hash is not null)
    execute function end_application_sessions();

-- A rotated token stays as long as its session, so that its reuse is recognized.
create table refresh_tokens (
    token_hash  bytea primary key,
    session_id  uuid not null references sessions on delete cascade,
    generation  integer not null,
    rotated_at  timestamptz,
    created_at  timestamptz not null
);
create index refresh_tokens_of_session on refresh_tokens (session_id, generation);

-- The organizations that an impersonation without `impersonated_in` has acted in. Their audit logs have
-- an entry about it.
create table impersonated_organizations (
    session_id  uuid not null references sessions on delete cascade,
    org_id      uuid not null references organizations on delete cascade,
    primary key (session_id, org_id)
);
create index impersonated_organizations_by_organization on impersonated_organizations (org_id);

-- Personal access tokens. A session backs each one, so everything that ends the sessions of its user ends
-- it, too.
create table personal_tokens (
    session_id    uuid primary key references sessions on delete cascade,
    -- null: acts on the user's own account
    org_id        uuid references organizations on delete cascade,
    token_hash    bytea not null constraint personal_tokens_hash_key unique,  -- SHA-256
    name          text not null,
    prefix        text not null,
    scopes        text[] not null,
    created_at    timestamptz not null,
    expires_at    timestamptz not null,  -- that of the session, which never moves
    last_used_at  timestamptz,
    announced     smallint  -- as in api_keys
);
create index personal_tokens_of_organization on personal_tokens (org_id, created_at desc, session_id desc)
    where org_id is not null;
create index personal_tokens_by_expiry on personal_tokens (expires_at);

-- Sign-ins in progress. A row is written when a page must be shown, or when an API client still needs a factor.
create table sign_in_flows (
    id                    uuid primary key,  -- in addresses of pages; also the `jti` and the `sid` of a pre-auth token
    browser_hash          bytea,  -- SHA-256 of the browser's device cookie; null: an API client
    target                text not null,
    request               text not null,  -- of the target, which alone reads it
    secret_hash           bytea unique,  -- SHA-256 of a secret that names the flow
    -- No foreign keys: sign-ins of strangers would lock the row of one service (docs/adr/0005).
    org_id                uuid,
    service_id            uuid,
    wants_fresh           boolean not null,
    keeps_trust           boolean not null,
    first_session_id      uuid,  -- of the browser when the flow began
    user_id               uuid references users on delete cascade,  -- of the proofs
    proofs                jsonb not null,
    proofs_expire_at      timestamptz,
    identity              bytea,  -- sealed; to link when all factors are proved
    failures              integer not null default 0,  -- at the present challenge, or at the second factor
    session_id            uuid references sessions on delete cascade,  -- the session that the flow is for, or that an API client started
    ticket_hash           bytea,  -- SHA-256 of the API client's ticket
    -- the newest email or provider request
    challenge_id          uuid unique,  -- of the email
    challenge             jsonb,
    challenge_hash        bytea unique,  -- SHA-256 of the link, or of the provider's state
    challenge_code        bytea,  -- sealed
    challenge_email       text,
    challenge_user_id     uuid references users on delete cascade,
    challenge_begun_at    timestamptz,
    challenge_expires_at  timestamptz,
    begun_at              timestamptz not null,
    expires_at            timestamptz not null,
    closed_at             timestamptz,  -- finished, or pushed out by newer flows of the browser
    -- the host of an external client that waits for the sign-in: no table has the client before the first consent
    external_client       text,
    -- the link to a connection that waits for a sign-in of the account's own
    -- (core/federation/connections/model/people.py)
    connection_link       jsonb
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02);
create index sign_in_flows_of_browser on sign_in_flows (browser_hash, begun_at desc)
    where closed_at is null and browser_hash is not null;
create index sign_in_flows_of_user on sign_in_flows (user_id) where user_id is not null;
create index sign_in_flows_of_session on sign_in_flows (session_id) where session_id is not null;
create index sign_in_flows_of_address on sign_in_flows (challenge_email) where challenge_email is not null;
create index sign_in_flows_of_recipient on sign_in_flows (challenge_user_id) where challenge_user_id is not null;
create index sign_in_flows_by_expiry on sign_in_flows (expires_at);
create index sign_in_flows_by_secret_expiry on sign_in_flows (greatest(proofs_expire_at, challenge_expires_at))
    where greatest(proofs_expire_at, challenge_expires_at) is not null;

-- The verified parts of a reauthentication that is not complete: the emailed code, and the sign-in at an
-- identity provider that the second factor must follow.
create table reauthentications (
    session_id       uuid primary key references sessions on delete cascade,
    address_hash     bytea,  -- SHA-256 of the address that the code was sent to
    code_salt        bytea,
    code_hash        bytea,
    code_expires_at  timestamptz,
    failures         integer not null default 0,  -- wrong codes
    provider         text,
    provider_at      timestamptz
);

-- Forms that were sent with a sign-in that was too old. They are sent again after a reauthentication in
-- the same session. The fields are sealed, because they can contain secrets.
create table kept_forms (
    id          uuid primary key,
    session_id  uuid not null references sessions on delete cascade,
    path        text not null,
    label       text not null,
    fields      bytea not null,
    created_at  timestamptz not null,
    expires_at  timestamptz not null
);
create index kept_forms_of_session on kept_forms (session_id);
create index kept_forms_by_expiry on kept_forms (expires_at);

-- The end of a browser session deletes the forms that were kept for it, in the same statement.
create function delete_kept_forms() returns trigger language plpgsql as $$
begin
    delete from kept_forms where session_id = new.id;
    return null;
end $$;
create trigger browser_session_forgets_forms after update of ended_at on sessions
    for each row when (old.ended_at is null and new.ended_at is not null and new.browser_hash is not null)
    execute function delete_kept_forms();

-- One-time keys of forms that were sent. A form that creates something, or shows a secret, works once.
create table sent_forms (
    form_hash   bytea primary key,  -- SHA-256 of the session, the path and the key of the form
    expires_at  timestamptz not null
);
create index sent_forms_by_expiry on sent_forms (expires_at);

-- Accounts at identity providers. An identity is provider, issuer and subject: with another issuer, a
-- provider has other users.
create table identities (
    id                uuid primary key,
    user_id           uuid not null references users on delete cascade,
    -- null: linked on the platform itself
    service_id        uuid references services on delete cascade,
    provider          text not null,
    provider_user_id  text not null,
    email             text,
    linked_at         timestamptz not null,
    access_token      bytea,  -- these two are sealed
    refresh_token     bytea,
    token_expires_at  timestamptz,
    scopes            text[],
    issuer            text not null default '',
    renewing_until    timestamptz,  -- until then, one process is asking the provider for new tokens
    -- One identity per user, provider and context. This index also finds all identities of a user.
    constraint identities_provider_key unique nulls not distinct (user_id, provider, service_id),
    constraint identities_subject_key unique nulls not distinct (provider, issuer, provider_user_id, service_id)
);
create index identities_of_service on identities (service_id) where service_id is not null;

-- The sign-in log: successes and failures.
create table login_events (
    id               uuid primary key,
    -- null: the log does not name the account
    user_id          uuid references users on delete cascade,
    session_id       uuid,
    org_id           uuid,
    provider         text not null,
    success          boolean not null,
    address          text,
    agent            text,
    created_at       timestamptz not null,
    service_id       uuid,
    risk_score       smallint not null default 0 check (risk_score between 0 and 100),
    risk_factors     text[] not null default '{}',
    city             text,
    country          text,
    reason           text,  -- of a failure; null: it succeeded
    seen_by          text not null default 'all' check (seen_by in ('all', 'platform', 'organization')),
    attempts         integer not null default 1,  -- of one client in one minute, in a row without a user
    request_id       text,
    blocked_seconds  integer,  -- how long the account was still blocked
    external_client  text,  -- the host of an external client
    -- No foreign key: the log outlives the connection.
    connection_id    uuid,
    fault            text,  -- why the answer of the identity provider was refused
    received         text[],  -- the names of the claims or attributes that came, never their values
    seconds_off      integer  -- by which a refused time is ahead of our clock, or if negative behind it
);
create index login_events_of_user on login_events (user_id, created_at desc);
create index login_events_of_organization on login_events (org_id, created_at desc, id desc)
    where org_id is not null;
create index login_events_of_service on login_events (service_id, created_at desc, id desc)
    where service_id is not null;
-- The places from which a user has ever signed in.
create index login_events_by_place on login_events (user_id, country, coalesce(city, ''))
    where success and country is not null;
create index login_events_by_time on login_events (created_at desc, id desc);
create index login_events_on_platform on login_events (created_at desc, id desc) where org_id is null and seen_by = 'all';
create index login_events_external on login_events (org_id, created_at desc, id desc)
    where success and external_client is not null;
create index login_events_of_connection on login_events (connection_id, created_at desc, id desc)
    where connection_id is not null;
create index login_events_of_request on login_events (request_id) where request_id is not null and not success;
create index login_events_failed on login_events (created_at desc, id desc) where not success;
create index login_events_failed_on_platform on login_events (created_at desc, id desc)
    where not success and org_id is null;
create index login_events_failed_of_organization on login_events (org_id, created_at desc, id desc)
    where not success and org_id is not null;
create index login_events_failed_of_service on login_events (service_id, created_at desc, id desc)
    where not success and service_id is not null;
create index login_events_failed_of_user on login_events (user_id, created_at desc)
    where not success and user_id is not null;
create index login_events_failed_by_reason on login_events (org_id, reason, created_at desc, id desc) where not success;
create index login_events_failed_of_reason on login_events (reason, created_at desc, id desc) where not success;

-- The sign-in policies for organizations, their applications, and the platform.
create sequence sign_in_policy_versions;
create table sign_in_policies (
    id            uuid primary key,
    org_id        uuid references organizations on delete cascade,  -- null: of the platform
    service_id    uuid references services on delete cascade,  -- null: of the whole organization
    rules         jsonb not null,  -- core/kernel/sign_in_policy/rules.py
    version       bigint not null default nextval('sign_in_policy_versions'),
    changed_at    timestamptz not null,
    changed_by    uuid,  -- no foreign key (docs/adr/0005)
    reminded      smallint not null default 0,  -- in the platform's policy: the number of emails about its start
    -- If a member with fewer rights than the owner changed the policy: the owner's rules and break-glass list. Null: the present
    -- values are the owner's.
    owner_rules   jsonb,
    owner_listed  uuid[],
    imposed_requirements  text[] not null default '{}',  -- SignInPolicy.imposed_requirements
    constraint sign_in_policies_key unique nulls not distinct (org_id, service_id)
);
create index sign_in_policies_of_service on sign_in_policies (service_id) where service_id is not null;

-- The networks from which admins of the organization may act, or null if its sign-in policy names none.
create function admin_networks(of_org uuid) returns jsonb language plpgsql stable as $$
begin
    return (select p.rules -> 'admin_networks' from sign_in_policies p where p.org_id = of_org and p.service_id is null);
end $$;

-- The period of trusted devices in the organization's sign-in policy, in days, or null if the policy has none.
create function policy_device_trust_days(of_org uuid) returns integer language plpgsql stable as $$
begin
    return (select (p.rules ->> 'device_trust_days')::integer from sign_in_policies p where p.org_id = of_org and p.service_id is null);
end $$;

-- The decision that a session meets the sign-in policy with this version. The nil UUID stands for the platform.
create table policy_passes (
    session_id   uuid not null references sessions on delete cascade,
    org_id       uuid not null,
    version      bigint not null,
    role         text,  -- the user's roles at the decision
    valid_until  timestamptz not null,  -- then the policy is asked again
    -- the last use of the organization in the session, less a tenth of the idle time at most
    used_at      timestamptz not null,
    primary key (session_id, org_id)
) with (fillfactor = 80);

-- Whether the session has a pass for this version of the organization's sign-in policy, and for the user's
-- present roles.
create function has_policy_pass(of_session uuid, of_org uuid, of_user uuid, of_version bigint, at timestamptz) returns boolean
language plpgsql stable as $$
begin
    return exists (
        select from policy_passes y
        where y.session_id = of_session and y.org_id = of_org and y.version = of_version and y.valid_until > at
          and y.role is not distinct from roles_key(of_org, of_user));
end $$;

-- At most three members, who may open the organization without the connection that its sign-in policy requires.
-- The audit log records when a member leaves the list, so the end of a membership deletes no row by itself.
create table break_glass_users (
    org_id   uuid not null references organizations on delete cascade,
    user_id  uuid not null references users on delete cascade,
    primary key (org_id, user_id)
);
create index break_glass_users_of_user on break_glass_users (user_id);

-- The sessions that used break glass, so that a session is reported once. A browser's session stands for the
-- sessions of applications that began in it.
create table break_glass_uses (
    session_id  uuid not null references sessions on delete cascade,
    org_id      uuid not null references organizations on delete cascade,
    used_at     timestamptz not null,
    primary key (session_id, org_id)
);
create index break_glass_uses_of_organization on break_glass_uses (org_id);

create table signing_keys (
    kid          text primary key,
    private_key  bytea not null,  -- PKCS #8 in PEM, sealed
    created_at   timestamptz not null,
    retires_at   timestamptz,
    signs_at     timestamptz  -- a key is published before it signs; null: it signs since its creation
);
-- Creating a key sets the retirement time of the one before. So exactly one key has none.
create unique index signing_keys_one_active on signing_keys ((true)) where retires_at is null;

-- The DPoP proofs that were used (RFC 9449 section 11.1; docs/adr/0033). The partitions are unlogged, so
-- that a use waits for no disk. A crash empties them and `dpop_nonce_keys`, and then no nonce from before
-- is accepted. Each partition takes the proofs with a nonce of one minute in ten, and is truncated some
-- minutes later, so that nothing is left for a vacuum.
create table dpop_proofs (
    slot  smallint not null,  -- the minute of the nonce, modulo 10
    -- the first 16 bytes of a hash over the key, the jti and the time of the nonce
    id    uuid not null,
    primary key (slot, id)
) partition by list (slot);
create unlogged table dpop_proofs_0 partition of dpop_proofs for values in (0);
create unlogged table dpop_proofs_1 partition of dpop_proofs for values in (1);
create unlogged table dpop_proofs_2 partition of dpop_proofs for values in (2);
create unlogged table dpop_proofs_3 partition of dpop_proofs for values in (3);
create unlogged table dpop_proofs_4 partition of dpop_proofs for values in (4);
create unlogged table dpop_proofs_5 partition of dpop_proofs for values in (5);
create unlogged table dpop_proofs_6 partition of dpop_proofs for values in (6);
create unlogged table dpop_proofs_7 partition of dpop_proofs for values in (7);
create unlogged table dpop_proofs_8 partition of dpop_proofs for values in (8);
create unlogged table dpop_proofs_9 partition of dpop_proofs for values in (9);

-- The secrets that make the nonces, for all processes.
create unlogged table dpop_nonce_keys (
    period  bigint primary key,  -- the hour since 1970
    secret  bytea not null
);

-- Empty a partition, unless it is empty or in use, for example by pg_dump. Return whether it had rows.
create function empty_dpop_proofs(slot integer) returns boolean language plpgsql as $$
declare
    name text := 'dpop_proofs_' || slot;
    has_rows boolean;
begin
    if pg_relation_size(name::regclass) = 0 then
        return false;
    end if;
    execute format('lock table %I in access exclusive mode nowait', name);
    execute format('select exists (select from %I)', name) into has_rows;
    execute format('truncate %I', name);
    return has_rows;
exception when lock_not_available then
    return false;
end $$;
