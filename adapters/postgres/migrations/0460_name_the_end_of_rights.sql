-- Set-up links also end because their creators may no longer create them.
alter table setup_links
    drop constraint setup_links_ended_by_check,
    add constraint setup_links_ended_by_check check (ended_by in ('admin', 'codes', 'finished', 'rights')) not valid;
