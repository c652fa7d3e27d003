-- The audit log, webhooks, logout notices and SIEM.

-- All events. The service only writes and deletes them: webhook deliveries are created in the same
-- statement and have their own payload.
create table events (
    id               uuid primary key,
    org_id           uuid,  -- null: of the platform or of an account
    name             text not null,
    actor_id         uuid,
    impersonator_id  uuid,
    target_id        text not null,
    data             jsonb not null,
    created_at       timestamptz not null,
    actor_kind       text
);
create index events_by_age on events (created_at);
create index events_of_organization on events (org_id, name) where org_id is not null;

-- Append-only. Entries without an organization are the platform's own log.
create table audit_log (
    id               uuid primary key,
    org_id           uuid,
    action           text not null,
    target_type      text not null,
    target_id        text not null,
    actor_id         uuid,  -- null: the service itself, or a person who is not signed in
    impersonator_id  uuid,
    address          text,
    agent            text,
    success          boolean not null default true,
    details          jsonb not null,
    created_at       timestamptz not null,
    -- null for a user; otherwise `actor_id` is the id of a credential or program
    actor_kind       text,
    actor_name       text  -- of a service account when it acted
);
-- One index for each way of reading an organization's log, newest first.
create index audit_log_of_organization on audit_log (org_id, created_at desc, id desc);
create index audit_log_by_target on audit_log (org_id, target_type, target_id, created_at desc, id desc);
create index audit_log_by_target_type on audit_log (org_id, target_type, created_at desc, id desc);
create index audit_log_by_action on audit_log (org_id, action, created_at desc, id desc);
create index audit_log_by_actor on audit_log (org_id, actor_id, created_at desc, id desc);
create index audit_log_by_nobody on audit_log (org_id, created_at desc, id desc) where actor_id is null;
-- An anonymization finds all entries of a user, newest first, and continues after any of them.
create index audit_log_of_actor on audit_log (actor_id, created_at desc, id desc) where actor_id is not null;
create index audit_log_of_impersonator on audit_log (impersonator_id, created_at desc, id desc)
    where impersonator_id is not null;
-- One index for each way of reading the platform's log. The indexes above do not give this order
-- for entries without an organization.
create index audit_log_of_platform on audit_log (created_at desc, id desc) where org_id is null;
create index audit_log_of_platform_by_action on audit_log (action, created_at desc, id desc)
    where org_id is null;
create index audit_log_of_platform_by_target on audit_log (target_type, target_id, created_at desc, id desc)
    where org_id is null;
create index audit_log_of_platform_by_actor on audit_log (actor_id, created_at desc, id desc)
    where org_id is null;
create index audit_log_of_platform_without_actor on audit_log (created_at desc, id desc)
    where org_id is null and actor_id is null;
create index audit_log_of_platform_by_impersonator on audit_log (impersonator_id, created_at desc, id desc)
    where org_id is null and impersonator_id is not null;
create index audit_log_of_platform_by_session on audit_log ((details ->> 'session_id'), created_at desc, id desc)
    where org_id is null and details ->> 'session_id' is not null;
-- A user's own activity, with or without an actor: links in emails work without a sign-in.
create index audit_log_about_account on audit_log (target_id)
    where target_type = 'user' and (starts_with(action, 'security.') or action = 'user.email_changed');
-- Failed entries are few among many: a search for them would read the whole log.
create index audit_log_failed on audit_log (org_id, created_at desc, id desc) where not success;
create index audit_log_failed_by_action on audit_log (org_id, action, created_at desc, id desc)
    where not success;
create index audit_log_failed_of_platform on audit_log (created_at desc, id desc)
    where org_id is null and not success;

-- The number of entries of each organization, kept by the statements that add them.
create table audit_totals (
    org_id       uuid not null,
    action       text not null,
    target_type  text not null,
    total        bigint not null,
    primary key (org_id, action, target_type)
);

-- The names that entries and lists show for people who left an organization, because entries have ids only. A row
-- lasts as long as the log, but ends with the account, with its anonymization, and when the person joins again.
create table former_members (
    org_id   uuid not null references organizations on delete cascade,
    user_id  uuid not null references users on delete cascade,
    email    text not null,  -- when they left
    name     text,  -- when they left; null also if the membership was not confirmed
    left_at  timestamptz not null,
    primary key (org_id, user_id)
);
create index former_members_of_user on former_members (user_id);
create index former_members_by_email on former_members (org_id, email);

create table webhooks (
    id          uuid primary key,
    org_id      uuid not null references organizations on delete cascade,
    name        text not null,
    url         text not null,
    events      text[] not null check (cardinality(events) > 0),
    is_active   boolean not null,
    secret      bytea not null,  -- sealed
    created_at  timestamptz not null,
    updated_at  timestamptz not null,
    constraint webhooks_name_key unique (org_id, name)
);

-- Replaced secrets. They sign beside the current one until `until`, because it is unknown which of them a
-- receiver has.
create table former_webhook_secrets (
    org_id      uuid not null references organizations on delete cascade,
    webhook_id  uuid not null references webhooks on delete cascade,
    position    bigint generated by default as identity,  -- the order in which they were replaced
    secret      bytea not null,  -- sealed
    until       timestamptz not null,
    primary key (webhook_id, position)
);
create index former_webhook_secrets_of_org on former_webhook_secrets (org_id);
create index former_webhook_secrets_by_end on former_webhook_secrets (until);

-- A webhook can have very many deliveries, so they have no foreign key: the housekeeper deletes them
-- (docs/adr/0006).
create table webhook_deliveries (
    id                    uuid primary key,
    org_id                uuid not null,
    webhook_id            uuid not null,
    event_type            text not null,
    actor_id              uuid,  -- the user with the address in the payload
    -- json, not jsonb, which would change the text: each attempt signs and sends the same text
    payload               json not null,
    -- `due` can be claimed now; `waiting` becomes due later, after a failed attempt or when a lease
    -- ends. So a search for work reads no waiting rows.
    status                text not null check (status in ('due', 'waiting', 'done')),
    due_at                timestamptz not null,
    claims                integer not null default 0,  -- attempts that were started
    attempt_count         integer not null default 0,  -- those with a known outcome
    delivered             boolean not null default false,
    response_status_code  integer,
    response_body         text,
    delivery_error        text,
    next_retry_at         timestamptz,
    created_at            timestamptz not null,
    updated_at            timestamptz not null,
    -- the finished ones, oldest first, with at, status, error and milliseconds
    attempts              jsonb not null default '[]',
    resent_at             timestamptz  -- when a failed delivery was sent again, as a new one
);
create index webhook_deliveries_due on webhook_deliveries (org_id, webhook_id, due_at) where status = 'due';
create index webhook_deliveries_waiting on webhook_deliveries (due_at) where status = 'waiting';
-- One index for each way of reading the list.
create index webhook_deliveries_of_webhook on webhook_deliveries (webhook_id, created_at desc, id desc);
create index webhook_deliveries_by_event on webhook_deliveries (webhook_id, event_type, created_at desc, id desc);
create index webhook_deliveries_by_outcome on webhook_deliveries (webhook_id, delivered, created_at desc, id desc);
create index webhook_deliveries_by_age on webhook_deliveries (created_at);
create index webhook_deliveries_of_actor on webhook_deliveries (actor_id) where actor_id is not null;
-- The newest attempts tell the health of a webhook. Failed deliveries are sent again in groups.
create index webhook_deliveries_by_attempt on webhook_deliveries (webhook_id, updated_at desc) where attempt_count > 0;
create index webhook_deliveries_to_resend on webhook_deliveries (webhook_id, created_at, id)
    where status = 'done' and not delivered and resent_at is null and event_type <> 'webhook.ping';

-- The number of webhook attempts and SCIM requests, for charts. The statements that record them count them here.
create table traffic_figures (
    org_id        uuid not null,
    kind          text not null check (kind in ('webhook', 'scim')),
    span          text not null check (span in ('hour', 'day')),
    start         timestamptz not null,
    outcome       text not null,
    total         bigint not null,
    milliseconds  bigint not null,  -- the sum of all durations
    slowest       integer not null,  -- in milliseconds
    primary key (org_id, kind, span, start, outcome)
);
create index traffic_figures_by_start on traffic_figures (span, start);

-- Back-channel logout: the queue of notices to applications about sessions that ended (docs/adr/0031).
-- No foreign keys: a notice outlives its session and its account. A notice that was delivered or given up
-- is deleted.
create table logout_notices (
    id             uuid primary key,
    org_id         uuid not null,
    service_id     uuid not null,
    user_id        uuid not null,
    session_id     uuid not null,
    status         text not null check (status in ('due', 'waiting')),  -- as in webhook_deliveries
    due_at         timestamptz not null,
    claims         integer not null default 0,  -- attempts that were started
    attempt_count  integer not null default 0,  -- those with a known outcome
    created_at     timestamptz not null
);
create index logout_notices_due on logout_notices (org_id, service_id, due_at) where status = 'due';
create index logout_notices_waiting on logout_notices (due_at) where status = 'waiting';
create index logout_notices_by_age on logout_notices (created_at);

-- Whatever ends a session of OpenID Connect, its application gets one notice, if it wants notices.
create function queue_logout_notice() returns trigger language plpgsql as $$
begin
    insert into logout_notices (id, org_id, service_id, user_id, session_id, status, due_at, created_at)
    select gen_random_uuid(), v.org_id, v.id, new.user_id, new.id, 'due', new.ended_at, new.ended_at
    from services v where v.org_id = new.org_id and v.id = new.service_id and v.backchannel_logout_uri is not null;
    if found then
        perform pg_notify('logout_notices', '');
    end if;
    return null;
end $$;
create trigger openid_session_ended after update of ended_at on sessions
    for each row when (old.ended_at is null and new.ended_at is not null and new.scope is not null and new.service_id is not null)
    execute function queue_logout_notice();

-- The system that an organization's audit log is forwarded to, and the state of forwarding. Recording an
-- event takes no lock here (docs/adr/0014).
create table siem_configurations (
    org_id           uuid primary key references organizations on delete cascade,
    id               uuid not null,  -- stays while a system is configured; the queue names it
    provider         text not null check (provider in ('http', 'splunk_hec', 'datadog')),
    endpoint_url     text not null,
    token            bytea not null,  -- sealed
    enabled          boolean not null,
    updated_at       timestamptz not null,
    due_at           timestamptz not null,  -- of the next attempt
    leased_until     timestamptz,  -- while one process makes an attempt
    claims           bigint not null default 0,
    failures         integer not null default 0,  -- since the last success
    failing_since    timestamptz,
    last_failure     text,
    last_success_at  timestamptz,
    is_slow          boolean not null default false,
    tested_until     timestamptz,  -- while an admin tests the configuration
    check ((failures = 0) = (failing_since is null) and (failing_since is null) = (last_failure is null))
);

-- The entries to forward, in their order. No foreign keys: a backlog can be large, and is deleted in
-- batches.
create table siem_queue (
    org_id    uuid not null,
    siem_id   uuid not null,
    position  bigint generated by default as identity,
    entry_id  uuid not null,  -- of the audit log
    primary key (org_id, siem_id, position)
);

-- Removed configurations. Their queues are deleted in batches.
create table removed_siem_configurations (
    id          uuid primary key,
    org_id      uuid not null,
    removed_at  timestamptz not null
);
