-- Whatever ends a browser session, the forms that were kept for it are deleted in the same statement.
create function delete_kept_forms() returns trigger language plpgsql as $$
begin
    delete from kept_forms where session_id = new.id;
    return null;
end $$;
create trigger browser_session_forgets_forms after update of ended_at on sessions
    for each row when (old.ended_at is null and new.ended_at is not null and new.browser_hash is not null)
    execute function delete_kept_forms();
