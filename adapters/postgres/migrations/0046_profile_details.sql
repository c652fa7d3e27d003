-- The claims about a user beside name, picture, locale and zoneinfo (OpenID Connect Core section 5.1), by name. Null: none is set.
alter table users add column profile_details jsonb;
