-- Grants for API resources (RFC 8707). Of a grant, `resource` has the identifier, and these columns the id and
-- the granted scopes. The id is no foreign key: a session outlives the API resource, and cannot be refreshed then.
alter table sessions
    add column api_resource_id  uuid,
    add column api_scope        text[];
alter table authorization_codes
    add column api_resource_id  uuid,
    add column api_scope        text[];
alter table device_codes
    add column resource         text,
    add column api_resource_id  uuid,
    add column api_scope        text[];

-- The scopes of an API resource that a user gave an application. They belong to the consent to the application, and
-- end with it.
create table api_consents (
    user_id      uuid not null,
    org_id       uuid not null,
    service_id   uuid not null,
    resource_id  uuid not null references api_resources on delete cascade,
    scope        text[] not null,
    granted_at   timestamptz not null,
    primary key (user_id, service_id, resource_id),
    foreign key (user_id, service_id) references consents on delete cascade
);
create index api_consents_of_resource on api_consents (resource_id);
