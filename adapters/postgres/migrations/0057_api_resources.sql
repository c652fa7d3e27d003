-- API resources: the APIs of an organization that applications get access tokens for (RFC 8707).
create table api_resources (
    id                  uuid primary key,
    org_id              uuid not null references organizations on delete cascade,
    identifier          text not null,  -- as registered: the `aud` of tokens
    canonical           text not null,  -- the identifier after normalization (RFC 3986 section 6.2)
    -- The host of an https identifier, which the organization must have verified. Null for URNs, and
    -- for the loopback interface.
    host                text,
    name                text not null,
    scope_names         text[] not null,
    scope_descriptions  text[] not null,
    token_seconds       integer not null check (token_seconds between 60 and 3600),
    access_policy       text not null check (access_policy in ('anyone', 'members', 'assigned')),
    created_at          timestamptz not null,
    updated_at          timestamptz not null,
    constraint api_resources_identifier_key unique (org_id, canonical),
    check (cardinality(scope_names) = cardinality(scope_descriptions))
);
-- A host has one verified owner, and a URN names its organization. Only loopback identifiers could belong
-- to several organizations.
create unique index api_resources_without_host on api_resources (canonical) where host is null;

-- The applications that may ask for an API resource for their users. `own_scopes`: for itself, with the grant
-- client_credentials.
create table api_resource_clients (
    org_id       uuid not null,
    resource_id  uuid not null references api_resources on delete cascade,
    service_id   uuid not null references services on delete cascade,
    own_scopes   text[] not null,
    created_at   timestamptz not null,
    primary key (resource_id, service_id)
);
create index api_resource_clients_of_service on api_resource_clients (service_id);

create table api_resource_assignments (
    org_id       uuid not null,
    resource_id  uuid not null references api_resources on delete cascade,
    user_id      uuid not null references users on delete cascade,
    created_at   timestamptz not null,
    primary key (resource_id, user_id)
);
create index api_resource_assignments_of_user on api_resource_assignments (user_id, org_id);
create index api_resource_assignments_by_age on api_resource_assignments (resource_id, created_at, user_id);
