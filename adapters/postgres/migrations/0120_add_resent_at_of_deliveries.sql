-- When a failed delivery was sent again, as a new one. Version 0.9.0 does not write it.
alter table webhook_deliveries add column resent_at timestamptz;
