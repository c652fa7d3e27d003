-- What the payment provider says before it can be told to anybody, or stays true when it says no more of it.

-- Where somebody completes a payment, sealed, as it opens to whoever has it: until it is known whose the subscription is to be, or there is
-- nothing to complete any more.
alter table billing_facts add column action_page bytea;

-- Customers that were deleted at the provider, whether they were anybody's here or not, so that what comes late of one brings it to nobody.
create table billing_deleted_customers (
    customer_id  text primary key,
    heard_at     timestamptz not null
);
create index billing_deleted_customers_past on billing_deleted_customers (heard_at);

-- When the object was made that says until when a period goes: not every one says so, and what another has said stays true.
alter table billing_facts
    add column period_at timestamptz,
    add column period_at_creation boolean not null default false;
update billing_facts set period_at = object_at, period_at_creation = at_creation where period_end is not null;
