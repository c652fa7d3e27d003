-- Fail the transaction unless a condition holds. A statement that is sent together with the commit can refuse with it:
-- the server then skips the commit. The service translates the name of the constraint into the refusal.
create function raise_unless(condition boolean, constraint_name text) returns void language plpgsql as $$
begin
    if condition is not true then
        raise check_violation using constraint = constraint_name, message = 'a condition of the transaction does not hold';
    end if;
end $$;
