-- What the payment provider says before it can be told to anybody, or stays true when it says no more of it.

-- Where somebody completes a payment, sealed, as it opens to whoever has it: until it is known whose the subscription is to be, or there is
-- nothing to complete any more.
alter table billing_facts add column action_page bytea;
