-- Outbound webhooks: whom organizations have told of what happens, and what is on its way to them.

create table webhooks (
    id               uuid primary key,
    org_id           uuid not null references organizations on delete cascade,
    name             text not null,
    url              text not null,
    events           text[] not null check (cardinality(events) > 0),
    is_active        boolean not null,
    secret           bytea not null,  -- sealed, as the next one is
    previous_secret  bytea,           -- which signs beside the other one until then
    previous_until   timestamptz,
    created_at       timestamptz not null,
    updated_at       timestamptz not null,
    constraint webhooks_name_key unique (org_id, name),
    check ((previous_secret is null) = (previous_until is null))
);
create index webhooks_by_previous_secret on webhooks (previous_until) where previous_until is not null;

-- There may be very many of one webhook, so none of these goes by a foreign key (ops/decisions/0006): the housekeeper removes them by the
-- tombstone of their webhook.
create table webhook_deliveries (
    id                    uuid primary key,
    org_id                uuid not null,
    webhook_id            uuid not null,
    event_type            text not null,
    actor_id              uuid,           -- the person whose address the payload has
    payload               json not null,  -- not jsonb, which would write it anew: this very text is signed and sent at every attempt
    -- `due` is what can be claimed now. `waiting` is what falls due later: because an attempt failed, or when the lease of one that is under
    -- way ends. So whoever looks for work sees nothing of what only waits.
    status                text not null check (status in ('due', 'waiting', 'done')),
    due_at                timestamptz not null,
    claims                integer not null default 0,  -- attempts that were begun
    attempt_count         integer not null default 0,  -- those whose outcome is known
    delivered             boolean not null default false,
    response_status_code  integer,
    response_body         text,
    delivery_error        text,
    next_retry_at         timestamptz,
    created_at            timestamptz not null,
    updated_at            timestamptz not null
);
create index webhook_deliveries_due on webhook_deliveries (org_id, webhook_id, due_at) where status = 'due';
create index webhook_deliveries_waiting on webhook_deliveries (due_at) where status = 'waiting';
-- One index for each way of reading the list.
create index webhook_deliveries_of_webhook on webhook_deliveries (webhook_id, created_at desc, id desc);
create index webhook_deliveries_by_event on webhook_deliveries (webhook_id, event_type, created_at desc, id desc);
create index webhook_deliveries_by_outcome on webhook_deliveries (webhook_id, delivered, created_at desc, id desc);
create index webhook_deliveries_by_age on webhook_deliveries (created_at);
create index webhook_deliveries_of_actor on webhook_deliveries (actor_id) where actor_id is not null;

create table deleted_webhooks (
    id          uuid primary key,
    deleted_at  timestamptz not null
);
