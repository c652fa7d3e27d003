-- The service accounts that get tokens for an API resource, with the scopes that an admin granted to them.
create table api_resource_service_accounts (
    org_id              uuid not null,
    resource_id         uuid not null references api_resources on delete cascade,
    service_account_id  uuid not null references service_accounts on delete cascade,
    own_scopes          text[] not null,
    created_at          timestamptz not null,
    primary key (resource_id, service_account_id)
);
create index api_resource_service_accounts_of_account on api_resource_service_accounts (service_account_id);
