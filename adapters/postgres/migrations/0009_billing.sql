-- Hosted checkout, and what the payment provider says of subscriptions.

-- As whom the provider knows an organization. The key goes along with the request that makes it, so that it is made once, however often that
-- request is sent. `user_id` is whom the provider's own data names for it.
create table billing_customers (
    org_id             uuid primary key references organizations on delete cascade,
    idempotency_key    uuid not null,
    customer_id        text constraint billing_customers_customer_key unique,  -- null: none is known yet
    user_id            uuid references users on delete set null,
    payment_method_id  text,
    heard_at           timestamptz,  -- when the newest event about it was made, at the provider
    payment_method_at  timestamptz,  -- and about its payment methods
    created_at         timestamptz not null
);
create index billing_customers_of_user on billing_customers (user_id) where user_id is not null;
create index billing_customers_of_payment_method on billing_customers (payment_method_id) where payment_method_id is not null;

-- What somebody was sent to the provider to buy. Written before the provider is asked, so that it is there whatever comes back first. It
-- outlives service, plan, organization and person until it is swept: what is paid for after they were deleted is ours to end there, and only this says
-- so.
create table billing_checkouts (
    id                        uuid primary key,
    org_id                    uuid not null,
    service_id                uuid not null,
    user_id                   uuid not null,
    plan_id                   uuid not null,
    price_id                  text not null,
    customer_id               text,
    session_id                text constraint billing_checkouts_session_key unique,
    provider_subscription_id  text,         -- what came of it
    created_at                timestamptz not null,
    check_at                  timestamptz   -- when to ask what came of it; null: no more
);
create index billing_checkouts_of_service on billing_checkouts (service_id, user_id);
create index billing_checkouts_of_user on billing_checkouts (user_id);
create index billing_checkouts_of_subscription on billing_checkouts (provider_subscription_id) where provider_subscription_id is not null;
create index billing_checkouts_by_age on billing_checkouts (created_at);
create index billing_checkouts_due on billing_checkouts (check_at) where check_at is not null;

-- Events that were processed, for good: a signed event may be sent again at any time (security.md H-3, N-9).
create table billing_events (
    id           text primary key,
    received_at  timestamptz not null
);

-- The newest that is known of each subscription at the provider, whether there is one of ours for it or not. Times ending in _at are those of
-- events. It holds nothing that says whose it is but, from when there is one of ours, the organization; and outlives that one, so that what
-- was removed here is known to be over when something of it still comes. Whoever locks a row of these has locked nothing else before.
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
    paid_until                timestamptz,
    failed_at                 timestamptz,
    action_at                 timestamptz,
    latest                    text check (latest in ('object', 'paid', 'failed')),
    ended                     boolean not null default false,
    heard_at                  timestamptz not null,
    check_at                  timestamptz
);
create index billing_facts_due on billing_facts (check_at) where check_at is not null;
create index billing_facts_past on billing_facts (heard_at) where ended or org_id is null;
create index billing_facts_of_customer on billing_facts (customer_id) where not ended;

-- Subscriptions that are to be cancelled at the provider, because they were here.
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

-- Whoever removes a subscription, and be it with its service, its organization or the account, has it cancelled there: by a trigger, since most
-- go by a cascade, and somebody would go on paying for one that was forgotten.
create function cancel_at_provider() returns trigger language plpgsql as $$
begin
    insert into billing_cancellations (provider_subscription_id, subscription_id, org_id, service_id, due_at)
    values (old.provider_subscription_id, old.id, old.org_id, old.service_id, '-infinity')
    on conflict do nothing;
    -- Others that they have bought there, and that wait for this one to end, go with it; of those that no checkout tells, it is asked at once
    -- whether there is still somebody. Whoever holds one of them is learning of it just now.
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
