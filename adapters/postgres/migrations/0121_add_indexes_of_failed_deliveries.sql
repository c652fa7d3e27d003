-- concurrently
-- The health of a webhook is that of its newest attempts, and failed deliveries are sent again in groups.
create index concurrently if not exists webhook_deliveries_by_attempt on webhook_deliveries (webhook_id, updated_at desc) where attempt_count > 0;
create index concurrently if not exists webhook_deliveries_to_resend on webhook_deliveries (webhook_id, created_at, id)
    where status = 'done' and not delivered and resent_at is null and event_type <> 'webhook.ping';
