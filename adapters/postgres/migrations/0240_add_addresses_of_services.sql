-- The address of the client ID metadata document of an external client, which no organization registered.
-- Null for applications. Version 0.9.0 creates no other.
alter table services add column client_uri text;
