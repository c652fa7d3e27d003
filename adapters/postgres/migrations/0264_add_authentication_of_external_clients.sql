-- How an external client authenticates, as consents have it. Version 0.9.0 has no external clients.
alter table services add column client_authentication text;
