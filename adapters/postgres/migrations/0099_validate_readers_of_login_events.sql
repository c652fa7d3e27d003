-- The validation blocks no sign-ins.
alter table login_events validate constraint login_events_seen_by_check;
