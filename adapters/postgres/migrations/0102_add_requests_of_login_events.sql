-- The request of a sign-in, and how long an account was still blocked. Version 0.9.0 writes neither.
alter table login_events
    add column request_id text,
    add column blocked_seconds integer;
-- The id of a counted row is a hash of what it counts.
drop index login_events_unknown;
