-- What the requests of an unfinished sign-in on our pages have taken from rate limits. The sign-in gives it back when it
-- succeeds (decision 390). Unlogged, like the rates themselves.
create unlogged table sign_in_charges (
    sign_in_hash  bytea not null,  -- of the browser's device id, or of the secret of a sign-in by email
    client        text not null,  -- the row of `rates`
    bucket        text not null,  -- in `tats`
    period        double precision not null,  -- seconds that one token of the bucket is worth
    expires_at    timestamptz not null  -- from then on the bucket has refilled this by itself
);
create index sign_in_charges_by_sign_in on sign_in_charges (sign_in_hash);
create index sign_in_charges_by_expiry on sign_in_charges (expires_at);
