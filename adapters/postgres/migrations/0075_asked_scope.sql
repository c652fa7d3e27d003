-- All scopes that an authorization request asked for. `scope` and `api_scope` have the granted ones. It is null in rows of
-- earlier releases, and in sessions without an authorization request.
alter table sessions add column asked_scope text[];
alter table authorization_codes add column asked_scope text[];
alter table device_codes add column asked_scope text[];
