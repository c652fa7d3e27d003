-- Accounts that the first sign-in through an organization's connection creates.
alter table users drop constraint users_origin_check;
alter table users add constraint users_origin_check check (origin in ('platform', 'api_key', 'scim', 'sign_up', 'connection')) not valid;
