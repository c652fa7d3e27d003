-- The request of a sign-in, and how long an account was still blocked. Version 0.9.0 writes neither.
alter table login_events
    add column request_id text,
    add column blocked_seconds integer;
