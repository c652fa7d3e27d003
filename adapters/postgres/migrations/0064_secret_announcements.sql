-- The days before the end that were announced last, as for credentials and personal access tokens. Secrets that end are found by their end.
alter table api_keys add column announced smallint;
create index api_keys_by_expiry on api_keys (expires_at) where expires_at is not null;

alter table scim_tokens add column announced smallint;
create index scim_tokens_by_expiry on scim_tokens (expires_at) where expires_at is not null;
