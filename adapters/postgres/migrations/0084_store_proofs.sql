-- The proofs of the last sign-in in a session, and their strength together. Null: version 0.9.0 started the session
-- or changed it, or its user did not sign in. Then the columns of version 0.9.0 count.
alter table sessions
    add column proofs jsonb,
    add column strength smallint;

-- Version 0.9.0 changes only its own columns, so the proofs are out of date then. For the time in which it still
-- runs; the next release drops the trigger and these columns.
create function forget_proofs_of_previous_sign_in() returns trigger language plpgsql as $$
begin
    new.proofs := null;
    new.strength := null;
    return new;
end $$;
create trigger sign_in_changed_by_previous_release
    before update of provider, authenticated_at, second_factor, fresh, created_at on sessions
    for each row when (
        new.proofs is not distinct from old.proofs
        and (new.provider, new.authenticated_at, new.second_factor, new.fresh, new.created_at)
            is distinct from (old.provider, old.authenticated_at, old.second_factor, old.fresh, old.created_at))
    execute function forget_proofs_of_previous_sign_in();
