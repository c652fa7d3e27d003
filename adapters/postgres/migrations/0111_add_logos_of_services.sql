-- The address of an application's logo. Version 0.9.0 neither reads nor writes it.
alter table services add column logo_url text;
