-- Failed sign-ins: why, for which application, and who may see them. Version 0.9.0 writes none of these.
alter table login_events
    add column reason text,
    add column seen_by text not null default 'all',
    add constraint login_events_seen_by_check check (seen_by in ('all', 'platform', 'organization')) not valid,
    -- of one client in one minute at accounts that the log does not name; such a row has no user
    add column attempts integer not null default 1,
    alter column user_id drop not null;
