-- The finished attempts of a delivery, oldest first: [{"at": ..., "status": ..., "error": ..., "milliseconds": ...}].
alter table webhook_deliveries add column attempts jsonb not null default '[]';
