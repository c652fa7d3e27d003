-- The granted scopes that version 0.9.0 does not know: it cannot read other names than its own in `scope`.
alter table sessions add column further_scope text[];
alter table authorization_codes add column further_scope text[];
alter table device_codes add column further_scope text[];
alter table consents add column further_scope text[] not null default '{}';
