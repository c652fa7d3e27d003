-- Services with their plans, subscriptions, API keys and users; logins by service; and the settings of organizations.

create table services (
    id                     uuid primary key,
    org_id                 uuid not null references organizations on delete cascade,
    slug                   text not null,
    name                   text not null,
    service_type           text not null check (service_type in ('web', 'mobile', 'desktop', 'api')),
    client_id              uuid not null constraint services_client_id_key unique,
    client_secret_hash     bytea,   -- SHA-256; public clients have none
    codehost_scopes        text[],  -- null: what the platform asks each provider for
    websuite_scopes        text[],
    officesuite_scopes     text[],
    redirect_uris          text[] not null,
    device_activation_uri  text,
    user_count             bigint not null default 0,  -- these two are kept by whoever adds or removes
    subscription_count     bigint not null default 0,
    created_at             timestamptz not null,
    updated_at             timestamptz not null,
    constraint services_org_slug_key unique (org_id, slug),
    check ((client_secret_hash is not null) = (service_type in ('web', 'api')))
);
create index services_by_age on services (org_id, created_at, id);

-- A plan that was removed stays for the ended subscriptions that had it.
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

create table subscriptions (
    id                        uuid primary key,
    org_id                    uuid not null,
    service_id                uuid not null references services on delete cascade,
    user_id                   uuid not null references users on delete no action,  -- counted, so whoever deletes the account counts it out
    plan_id                   uuid not null references plans on delete cascade,
    status                    text not null check (status in ('active', 'cancelled', 'expired', 'past_due')),
    current_period_end        timestamptz not null,
    provider_subscription_id  text constraint subscriptions_provider_key unique,  -- null: made through the service interface
    created_at                timestamptz not null,
    updated_at                timestamptz not null
);
create unique index subscriptions_one_live on subscriptions (service_id, user_id) where status in ('active', 'past_due');
create index subscriptions_by_age on subscriptions (service_id, created_at, id);
create index subscriptions_by_status on subscriptions (service_id, status, created_at, id);
create index subscriptions_of_user on subscriptions (user_id, service_id);
create index subscriptions_of_plan on subscriptions (plan_id);
create index subscriptions_running_out on subscriptions (current_period_end) where status = 'active' and provider_subscription_id is null;
create index subscriptions_running_out_of_service on subscriptions (service_id, current_period_end)
    where status = 'active' and provider_subscription_id is null;

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
    created_by    uuid not null,  -- the account may be gone by now
    created_at    timestamptz not null
);
create index api_keys_by_age on api_keys (service_id, created_at, id);

-- Who uses a service: has signed in to it, or was made by one of its API keys. Written only while the row of the service is held, so that
-- nobody becomes a user of a service that is being deleted. No foreign key to it: with an organization go hundreds of thousands of these,
-- which the housekeeper removes (ops/decisions/0006). One to the account, without a cascade: they are counted. It keeps equal what lists go
-- by, the address and whether the account is deactivated, because a search looks at all there is, and the index alone shall answer it.
alter table users
    add column deactivated boolean not null generated always as (deactivated_at is not null) stored,
    add constraint users_listed_key unique (id, email, deactivated);
create table service_users (
    service_id      uuid not null,
    user_id         uuid not null,
    org_id          uuid not null,
    email           text not null,
    deactivated     boolean not null,
    created_at      timestamptz not null,
    first_login_at  timestamptz,
    last_login_at   timestamptz,
    primary key (service_id, user_id),
    constraint service_users_user_fkey foreign key (user_id, email, deactivated) references users (id, email, deactivated)
        on update cascade on delete no action
);
create index service_users_by_age on service_users (service_id, created_at, user_id) include (email, deactivated);
create index service_users_deactivated on service_users (service_id) where deactivated;
create index service_users_of_organization on service_users (org_id, user_id);
create index service_users_of_user on service_users (user_id);

-- And so who is an end user of an organization: a row for each person who has any above. Nothing that a login changes is here.
create table end_users (
    org_id       uuid not null,
    user_id      uuid not null,
    email        text not null,
    deactivated  boolean not null,
    created_at   timestamptz not null,
    primary key (org_id, user_id),
    constraint end_users_user_fkey foreign key (user_id, email, deactivated) references users (id, email, deactivated)
        on update cascade on delete no action
);
create index end_users_by_age on end_users (org_id, created_at, user_id) include (email, deactivated);
create index end_users_deactivated on end_users (org_id) where deactivated;
create index end_users_of_user on end_users (user_id);
create table end_user_totals (
    org_id  uuid primary key,
    total   bigint not null
);

create table identities (
    id                uuid primary key,
    user_id           uuid not null references users on delete cascade,
    service_id        uuid references services on delete cascade,  -- null: linked on the platform itself
    provider          text not null check (provider in ('codehost', 'websuite', 'officesuite')),
    provider_user_id  text not null,
    email             text,
    linked_at         timestamptz not null,
    constraint identities_subject_key unique nulls not distinct (provider, provider_user_id, service_id)
);
create index identities_of_user on identities (user_id);
create index identities_of_service on identities (service_id) where service_id is not null;

-- A login to a service is one of its organization, too.
alter table login_events add column service_id uuid;
drop index login_events_of_organization;
create index login_events_of_organization on login_events (org_id, created_at desc, id desc) where org_id is not null;
create index login_events_of_service on login_events (service_id, created_at desc, id desc) where service_id is not null;
-- How many there were on each day, in UTC. Every login to a service counts here; `shard` is drawn by lot, so that they seldom wait for each
-- other. The sum over the shards is the number. Those of days that are over the housekeeper puts together, as shard 0.
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
-- What the housekeeper still has to remove of a service that is gone.
create table deleted_services (
    id          uuid primary key,
    deleted_at  timestamptz not null
);

-- A session of an application: its context is the service, and the organization of that. All of a person's go with the account, also those
-- that have ended.
alter table sessions add column service_id uuid;
drop index sessions_of_user;
create index sessions_of_user on sessions (user_id);

-- Who did it, where that was no person: `actor_id` is then the id of the credential.
alter table audit_log add column actor_kind text;
alter table events add column actor_kind text;
-- What tells of somebody's account alone goes with it, from whatever log.
create index audit_log_of_account on audit_log (target_id) where target_type = 'user' and starts_with(action, 'security.');

-- Whose name, logo and colour a mail, and the page that its link leads to, has beside ours.
alter table mails add column org_id uuid;
alter table one_time_tokens add column org_id uuid;

create table smtp_settings (
    org_id      uuid primary key references organizations on delete cascade,
    host        text not null,
    port        integer not null,
    username    text,
    password    bytea,  -- sealed
    from_email  text not null,
    from_name   text,
    tls         boolean not null,
    updated_at  timestamptz not null,
    check ((username is null) = (password is null))
);

create table branding (
    org_id         uuid primary key references organizations on delete cascade,
    logo_url       text,
    primary_color  text,
    product_name   text,
    updated_at     timestamptz not null
);

create table domains (
    org_id       uuid primary key references organizations on delete cascade,
    domain       text not null,
    challenge    text not null,  -- what a TXT record of the domain has to say
    verified_at  timestamptz,
    created_at   timestamptz not null
);
create unique index domains_one_organization on domains (domain) where verified_at is not null;

create table home_realm_routes (
    org_id    uuid not null references organizations on delete cascade,
    domain    text not null,
    provider  text not null check (provider in ('codehost', 'websuite', 'officesuite')),
    primary key (org_id, domain)
);

create table oauth_credentials (
    service_id     uuid not null references services on delete cascade,
    provider       text not null check (provider in ('codehost', 'websuite', 'officesuite')),
    org_id         uuid not null,
    client_id      text not null,
    client_secret  bytea not null,  -- sealed
    updated_at     timestamptz not null,
    primary key (service_id, provider)
);
