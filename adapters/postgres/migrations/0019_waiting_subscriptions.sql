-- What somebody has bought beside a subscription that is live waits for that one to end, and then takes its place.

-- The subscription of ours that it waits for. Those that waited before this was noted are asked about once a day, as they were.
alter table billing_facts add column waits_for uuid;
create index billing_facts_waiting on billing_facts (waits_for) where waits_for is not null;

-- The provider is asked about it as soon as that one ends, or nobody has what is paid for until the next time that it is asked anyway. By
-- triggers, since a subscription ends in many ways: by a key, by an event, by time, with its service or its person. Whoever holds one that
-- waits is learning of it just now.
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

-- What the provider has ended stays ended there. One that a key has made live again since is the organization's own, and runs out by its
-- period, like every other one that no provider looks after.
update subscriptions s set provider_subscription_id = null
from billing_facts f
where f.provider_subscription_id = s.provider_subscription_id and f.org_id = s.org_id and f.ended and s.status in ('active', 'past_due');
