-- What is known of payments and of means of payment, so that events may come in any order.

-- Of each means of payment the newest that is known: what the customer at the provider is to whom it is attached, since then; nobody has one that
-- was detached. Whose such a customer is may be heard later, so nothing of ours is named here.
create table billing_payment_methods (
    payment_method_id  text primary key,
    customer_id        text,
    said_at            timestamptz not null,  -- when the event that says so was made, at the provider
    heard_at           timestamptz not null
);
create index billing_payment_methods_of_customer on billing_payment_methods (customer_id, said_at) where customer_id is not null;
create index billing_payment_methods_past on billing_payment_methods (heard_at);
insert into billing_payment_methods (payment_method_id, customer_id, said_at, heard_at)
select payment_method_id, min(customer_id), min(payment_method_at), now() from billing_customers
where payment_method_id is not null and customer_id is not null and payment_method_at is not null group by payment_method_id;
drop index billing_customers_of_payment_method;
alter table billing_customers drop column payment_method_id, drop column payment_method_at;

-- What an organization pays with: what was attached last of all that still is; of the same second, what was heard last.
create view billing_default_payment_methods as
select c.org_id, m.payment_method_id
from billing_customers c cross join lateral (
    select payment_method_id from billing_payment_methods m
    where m.customer_id = c.customer_id order by m.said_at desc, m.heard_at desc limit 1) m;

-- Of each subscription the periods that were paid for, as the times of the events and the ends: only those that no later event outlasts,
-- so that there are as many as shorter periods followed longer ones, which is one as a rule.
alter table billing_facts
    add column paid_ats timestamptz[] not null default '{}',
    add column paid_untils timestamptz[] not null default '{}';
update billing_facts set paid_ats = array[paid_at], paid_untils = array[paid_until] where paid_at is not null and paid_until is not null;
alter table billing_facts drop column paid_until;

-- What is to be asked of one customer is asked at once.
create index billing_checkouts_due_of_org on billing_checkouts (org_id, check_at) where check_at is not null;
