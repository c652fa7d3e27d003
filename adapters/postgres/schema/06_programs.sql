-- Programs that act for an organization or for the platform, their credentials, and API resources.

create table service_accounts (
    id           uuid primary key,  -- also its client id
    org_id       uuid references organizations on delete cascade,  -- null: of the platform
    name         text not null,
    owner_id     uuid not null,  -- the user who is responsible for it; the account may be gone
    role         text,
    scopes       text[],  -- null: all that the role allows
    granted      text[] not null default '{}',  -- the capabilities that an owner granted by name
    created_by   uuid not null,
    created_at   timestamptz not null,
    updated_at   timestamptz not null,
    role_id      uuid references organization_roles,
    -- after its owner left, the account goes on until `ends_at`, with `kept_rights` at most
    ends_at      timestamptz,
    kept_rights  text[],
    constraint service_accounts_role_check check (role_id is not null or is_role(role)),
    check ((org_id is null) = (role is null))
);
create index service_accounts_of_organization on service_accounts (org_id, created_at desc, id desc);
create index service_accounts_of_owner on service_accounts (owner_id);
create index service_accounts_of_role on service_accounts (role_id) where role_id is not null;
create index service_accounts_ending on service_accounts (ends_at) where ends_at is not null;
create trigger role_id before insert or update of role on service_accounts
    for each row when (new.role_id is not null or not is_role(new.role)) execute function set_role_id();

-- How a service account or an API resource authenticates. `client_id` is the id of either.
create table credentials (
    id            uuid primary key,
    client_id     uuid not null,
    org_id        uuid references organizations on delete cascade,  -- null: of the platform
    kind          text not null check (kind in ('secret', 'key', 'federated')),
    name          text not null,
    secret_hash   bytea,  -- SHA-256
    public_key    jsonb,  -- RFC 7517
    -- of the tokens of a pipeline, with their audience and the pattern of their subject
    issuer        text,
    audience      text,
    subject       text,
    expires_at    timestamptz,
    created_by    uuid not null,
    created_at    timestamptz not null,
    last_used_at  timestamptz,
    announced     smallint,  -- as in api_keys
    -- identifies the credential in lists: the start of the secret, or the thumbprint of the key
    -- (RFC 7638)
    hint          text,
    check ((secret_hash is not null) = (kind = 'secret')),
    check ((public_key is not null) = (kind = 'key')),
    check ((issuer is not null and audience is not null and subject is not null) = (kind = 'federated'))
);
create index credentials_of_client on credentials (client_id, created_at desc, id desc);
create index credentials_of_organization on credentials (org_id);
create index credentials_by_expiry on credentials (expires_at) where expires_at is not null;

-- The APIs of an organization that applications get access tokens for (RFC 8707).
create table api_resources (
    id                                uuid primary key,
    org_id                            uuid not null references organizations on delete cascade,
    identifier                        text not null,  -- as registered: the `aud` of tokens
    canonical                         text not null,  -- the identifier after normalization (RFC 3986 section 6.2)
    -- of an https identifier, which the organization must have verified; null for URNs and the
    -- loopback interface
    host                              text,
    name                              text not null,
    scope_names                       text[] not null,
    scope_descriptions                text[] not null,
    token_seconds                     integer not null check (token_seconds between 60 and 3600),
    access_policy                     text not null check (access_policy in ('anyone', 'members', 'members_and_assigned', 'assigned')),
    created_at                        timestamptz not null,
    updated_at                        timestamptz not null,
    -- `external_*`: the external clients, which no organization registered, that may ask for the resource
    external_admit                    text not null default 'none',
    external_hosts                    text[] not null default '{}',  -- of the addresses of the clients' documents
    external_scopes                   text[],  -- null: all scopes
    external_token_endpoint_audience  boolean not null default false,
    external_registration             boolean not null default false,
    scope_implications                jsonb not null default '{}',  -- the scopes that a scope implies, by its name
    constraint api_resources_identifier_key unique (org_id, canonical),
    check (cardinality(scope_names) = cardinality(scope_descriptions))
);
-- A host has one verified owner, and a URN names its organization. Only loopback identifiers could
-- belong to several organizations.
create unique index api_resources_without_host on api_resources (canonical) where host is null;
create index api_resources_with_host on api_resources (canonical) where host is not null;

-- The applications that may ask for an API resource for their users.
create table api_resource_clients (
    org_id       uuid not null,
    resource_id  uuid not null references api_resources on delete cascade,
    service_id   uuid not null references services on delete cascade,
    own_scopes   text[] not null,  -- for the application itself, with the grant client_credentials
    created_at   timestamptz not null,
    primary key (resource_id, service_id)
);
create index api_resource_clients_of_service on api_resource_clients (service_id);

-- The service accounts that get tokens for an API resource, with the scopes that an admin granted.
create table api_resource_service_accounts (
    org_id              uuid not null,
    resource_id         uuid not null references api_resources on delete cascade,
    service_account_id  uuid not null references service_accounts on delete cascade,
    own_scopes          text[] not null,
    created_at          timestamptz not null,
    primary key (resource_id, service_account_id)
);
create index api_resource_service_accounts_of_account on api_resource_service_accounts (service_account_id);

create table api_resource_assignments (
    org_id       uuid not null,
    resource_id  uuid not null references api_resources on delete cascade,
    user_id      uuid not null references users on delete cascade,
    created_at   timestamptz not null,
    primary key (resource_id, user_id)
);
create index api_resource_assignments_of_user on api_resource_assignments (user_id, org_id);
create index api_resource_assignments_by_age on api_resource_assignments (resource_id, created_at, user_id);

-- The groups that may use an API resource with the policy `assigned`, beside its assigned users.
create table api_resource_groups_assigned (
    org_id       uuid not null references organizations on delete cascade,
    resource_id  uuid not null references api_resources on delete cascade,
    group_id     uuid not null references groups on delete cascade,
    assigned_at  timestamptz not null,
    primary key (resource_id, group_id)
);
create index api_resource_groups_assigned_of_group on api_resource_groups_assigned (group_id);
create index api_resource_groups_assigned_of_organization on api_resource_groups_assigned (org_id);

-- As `group_opens_service`, for an API resource.
create function group_opens_resource(of_resource uuid, of_user uuid) returns boolean language plpgsql stable as $$
begin
    return exists (
        select from api_resource_groups_assigned g join group_members i on i.group_id = g.group_id
        where g.resource_id = of_resource and i.user_id = of_user
          and (exists (select from memberships m where m.org_id = g.org_id and m.user_id = i.user_id and m.confirmed_at is not null)
               or exists (select from end_users e where e.org_id = g.org_id and e.user_id = i.user_id)));
end $$;

-- Initial access tokens of organizations, with which clients register themselves as applications (RFC 7591).
create table registration_tokens (
    id            uuid primary key,
    org_id        uuid not null references organizations on delete cascade,
    name          text not null,
    prefix        text not null,
    token_hash    bytea not null constraint registration_tokens_hash_key unique,  -- SHA-256 of the whole token
    uses_left     integer not null check (uses_left >= 0),
    expires_at    timestamptz,
    created_by    uuid not null,  -- no foreign key: the account may be gone
    created_at    timestamptz not null,
    last_used_at  timestamptz,
    announced     smallint  -- as in api_keys
);
create index registration_tokens_by_age on registration_tokens (org_id, created_at, id);
