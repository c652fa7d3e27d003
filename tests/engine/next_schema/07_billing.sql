-- Subscriptions, the hosted checkout, and the facts from the payment provider (docs/adr/0016).

create table subscriptions (
    id                        uuid primary key,
    org_id                    uuid not null,
    service_id                uuid not null references services on delete cascade,
    -- no cascade: subscriptions are counted, so they are removed and counted out first
    user_id                   uuid not null references users,
    plan_id                   uuid not null references plans on delete cascade,
    status                    text not null check (status in ('active', 'cancelled', 'expired', 'past_due')),
    current_period_end        timestamptz not null,
    -- null: created through the service API
    provider_subscription_id  text constraint subscriptions_provider_key unique,
    created_at                timestamptz not null,
    updated_at                timestamptz not null
);
create unique index subscriptions_one_live on subscriptions (service_id, user_id)
    where status in ('active', 'past_due');
create index subscriptions_by_age on subscriptions (service_id, created_at, id);
create index subscriptions_by_status on subscriptions (service_id, status, created_at, id);
create index subscriptions_of_user on subscriptions (user_id, service_id);
create index subscriptions_of_plan on subscriptions (plan_id);
create index subscriptions_running_out on subscriptions (current_period_end)
    where status = 'active' and provider_subscription_id is null;
create index subscriptions_running_out_of_service on subscriptions (service_id, current_period_end)
    where status = 'active' and provider_subscription_id is null;

-- The customer of each organization at the provider.
create table billing_customers (
    org_id           uuid primary key references organizations on delete cascade,
    -- sent with the request that creates the customer, so that a repetition creates no second one
    idempotency_key  uuid not null,
    customer_id      text constraint billing_customers_customer_key unique,  -- null: not known yet
    -- the user that the provider's metadata names
    user_id          uuid references users on delete set null,
    heard_at         timestamptz,  -- when the newest event about it was created at the provider
    created_at       timestamptz not null
);
create index billing_customers_of_user on billing_customers (user_id) where user_id is not null;

-- The newest state of each payment method: the customer that it is attached to, or null if it was
-- detached. The organization of a customer may become known later, so it is not named here.
create table billing_payment_methods (
    payment_method_id  text primary key,
    customer_id        text,
    said_at            timestamptz not null,  -- when the event was created at the provider
    heard_at           timestamptz not null
);
create index billing_payment_methods_of_customer on billing_payment_methods (customer_id, said_at)
    where customer_id is not null;
create index billing_payment_methods_past on billing_payment_methods (heard_at);

-- The payment method of an organization: the one that was attached last. The order of receipt
-- decides between two events of the same second.
create view billing_default_payment_methods as
select c.org_id, m.payment_method_id
from billing_customers c cross join lateral (
    select payment_method_id from billing_payment_methods m
    where m.customer_id = c.customer_id order by m.said_at desc, m.heard_at desc limit 1) m;

-- Customers that were deleted at the provider, known here or not. Late events attach none of them to an
-- organization.
create table billing_deleted_customers (
    customer_id  text primary key,
    heard_at     timestamptz not null
);
create index billing_deleted_customers_past on billing_deleted_customers (heard_at);

-- A checkout at the provider, written before the provider is asked. It outlives the service, plan,
-- organization and user until the housekeeper deletes it: a payment after their deletion must be ended
-- at the provider, and only this row knows the subscription.
create table billing_checkouts (
    id                        uuid primary key,
    org_id                    uuid not null,
    service_id                uuid not null,
    user_id                   uuid not null,
    plan_id                   uuid not null,
    price_id                  text not null,
    customer_id               text,
    session_id                text constraint billing_checkouts_session_key unique,
    provider_subscription_id  text,  -- the result
    created_at                timestamptz not null,
    check_at                  timestamptz  -- when to ask the provider for the result; null: never again
);
create index billing_checkouts_of_service on billing_checkouts (service_id, user_id);
create index billing_checkouts_of_user on billing_checkouts (user_id);
create index billing_checkouts_of_subscription on billing_checkouts (provider_subscription_id)
    where provider_subscription_id is not null;
create index billing_checkouts_by_age on billing_checkouts (created_at);
create index billing_checkouts_due on billing_checkouts (check_at) where check_at is not null;
create index billing_checkouts_due_of_org on billing_checkouts (org_id, check_at) where check_at is not null;

-- Events that were processed, forever: a signed event can be sent again at any time (security H-3, N-9).
create table billing_events (
    id           text primary key,
    received_at  timestamptz not null
);

-- The newest facts about each subscription at the provider, with or without a subscription here. It
-- names the organization once there is one here, and outlives it, so that a late event of a removed
-- subscription finds that it has ended. Columns that end in `_at` have the times of events.
--
-- Lock order: a transaction that locks a row here has locked nothing before.
create table billing_facts (
    provider_subscription_id  text primary key,
    org_id                    uuid,
    customer_id               text,
    object_at                 timestamptz,
    at_creation               boolean not null default false,
    status                    text,
    price_id                  text,
    period_end                timestamptz,
    paid_at                   timestamptz,
    failed_at                 timestamptz,
    action_at                 timestamptz,
    latest                    text check (latest in ('object', 'paid', 'failed')),
    ended                     boolean not null default false,
    heard_at                  timestamptz not null,
    check_at                  timestamptz,
    -- The paid periods, as times of events and ends. A period is removed if a later event outlasts it.
    paid_ats                  timestamptz[] not null default '{}',
    paid_untils               timestamptz[] not null default '{}',
    -- where a user completes a payment, sealed; null once it is known who gets the subscription, or
    -- nothing is left to complete
    action_page               bytea,
    -- when the object that states the end of the period was created; not every object does
    period_at                 timestamptz,
    period_at_creation        boolean not null default false,
    -- the live subscription that must end before this one takes its place
    waits_for                 uuid
);
create index billing_facts_due on billing_facts (check_at) where check_at is not null;
create index billing_facts_past on billing_facts (heard_at) where ended or org_id is null;
create index billing_facts_of_customer on billing_facts (customer_id) where not ended;
create index billing_facts_waiting on billing_facts (waits_for) where waits_for is not null;

-- Subscriptions to cancel at the provider, because they were canceled or removed here.
create table billing_cancellations (
    provider_subscription_id  text primary key,
    subscription_id           uuid not null,
    org_id                    uuid not null,
    service_id                uuid not null,
    asked_at                  timestamptz not null default now(),
    due_at                    timestamptz not null
);
create index billing_cancellations_due on billing_cancellations (due_at);
create index billing_cancellations_of_service on billing_cancellations (service_id);

-- A removed subscription is canceled at the provider. A trigger does this because most are removed by a
-- cascade, and the user would continue to pay for a forgotten one.
--
-- Other subscriptions that the user bought there, and that wait for the removed one, are canceled, too.
-- If no checkout tells who bought one, it is checked at once. A transaction that holds one of them is
-- updating it at this moment.
create function cancel_at_provider() returns trigger language plpgsql as $$
begin
    insert into billing_cancellations (provider_subscription_id, subscription_id, org_id, service_id, due_at)
    values (old.provider_subscription_id, old.id, old.org_id, old.service_id, '-infinity')
    on conflict do nothing;
    insert into billing_cancellations (provider_subscription_id, subscription_id, org_id, service_id, due_at)
    select w.provider_subscription_id, old.id, c.org_id, c.service_id, '-infinity'
    from billing_checkouts c join billing_facts w on w.provider_subscription_id = c.provider_subscription_id
    where c.org_id = old.org_id and c.service_id = old.service_id and c.user_id = old.user_id and w.org_id is null and not w.ended
    on conflict do nothing;
    update billing_facts set check_at = '-infinity' where provider_subscription_id = any(array(
        select w.provider_subscription_id from billing_facts f join billing_facts w on w.customer_id = f.customer_id
        where f.provider_subscription_id = old.provider_subscription_id and w.org_id is null and not w.ended and w.check_at is not null
        for update of w skip locked));
    return null;
end $$;
create trigger subscriptions_removed after delete on subscriptions
    for each row when (old.provider_subscription_id is not null and old.status <> 'cancelled') execute function cancel_at_provider();

-- When a subscription ends, those that wait for it are checked at once. Triggers do this because a
-- subscription ends in many ways: by a key, an event, time, or with its service or user.
create function ask_about_waiting() returns trigger language plpgsql as $$
begin
    update billing_facts set check_at = '-infinity' where provider_subscription_id = any(array(
        select w.provider_subscription_id from ended e join billing_facts w on w.waits_for = e.id
        where tg_op = 'DELETE' or e.status not in ('active', 'past_due') for update of w skip locked));
    return null;
end $$;
create trigger subscriptions_ended after update on subscriptions
    referencing new table as ended for each statement execute function ask_about_waiting();
create trigger subscriptions_gone after delete on subscriptions
    referencing old table as ended for each statement execute function ask_about_waiting();
