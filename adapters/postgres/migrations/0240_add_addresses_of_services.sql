-- The address of the client ID metadata document of an external client, which no organization registered.
-- Null for applications. Version 0.9.0 creates no other.
alter table services add column client_uri text;
-- External clients have no secret, whatever their type.
alter table services
    drop constraint services_check,
    add constraint services_check
        check ((client_secret_hash is not null) = (client_uri is null and service_type in ('web', 'api'))) not valid;
