-- The profile of a user, with the names of the claims of OpenID Connect. Null: not set.
alter table users
    add column name text,
    add column picture text,
    add column locale text,
    add column zoneinfo text,
    add column profile_changed_at timestamptz;
