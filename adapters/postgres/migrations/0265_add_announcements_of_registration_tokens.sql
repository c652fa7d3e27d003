-- The days before the end that were announced last, as in api_keys. Version 0.9.0 has no registration tokens.
alter table registration_tokens add column announced smallint;
