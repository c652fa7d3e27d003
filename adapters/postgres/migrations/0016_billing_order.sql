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
