-- The scopes that a scope of an API resource implies, by its name. Version 0.9.0 does not know them.
alter table api_resources add column scope_implications jsonb not null default '{}';
