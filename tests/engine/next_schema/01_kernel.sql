-- Rate limits, and a condition for transactions.
--
-- For all files: identifiers are random UUIDs that the application creates. Times are written in UTC,
-- and "now" comes from the application.

-- Fail the transaction unless a condition holds. A statement that is sent together with the commit can
-- refuse with it: the server then skips the commit. The service translates the name of the constraint
-- into the refusal.
create function raise_unless(condition boolean, constraint_name text) returns void language plpgsql as $$
begin
    if condition is not true then
        raise check_violation using constraint = constraint_name, message = 'a condition of the transaction does not hold';
    end if;
end $$;

-- Unlogged: a crash of the database empties the table, which only costs counts. A clean stop keeps it.
create unlogged table rates (
    client      text primary key,
    tats        jsonb not null,  -- bucket name -> theoretical arrival time in seconds since 1970 (GCRA)
    -- the verdict on the latest request: 0, or the seconds until it would be admitted
    wait        double precision not null,
    expires_at  timestamptz not null
);
create index rates_by_expiry on rates (expires_at);

-- What the requests of an unfinished sign-in on our pages have taken from rate limits. The sign-in
-- gives it back when it succeeds. Unlogged, like the rates themselves.
create unlogged table sign_in_charges (
    sign_in_hash  bytea not null,  -- of the browser's device id, or of the secret of a sign-in by email
    client        text not null,  -- the row of `rates`
    bucket        text not null,  -- in `tats`
    period        double precision not null,  -- seconds that one token of the bucket is worth
    expires_at    timestamptz not null  -- by then, the bucket has refilled this by itself
);
create index sign_in_charges_by_sign_in on sign_in_charges (sign_in_hash);
create index sign_in_charges_by_expiry on sign_in_charges (expires_at);
