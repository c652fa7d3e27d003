-- The clients that no organization registered, and may ask for an API resource. Version 0.9.0 does not know them, and admits none.
alter table api_resources
    add column external_admit text not null default 'none',
    add column external_hosts text[] not null default '{}',  -- of the addresses of the clients' documents
    add column external_scopes text[],  -- null: all scopes
    add column external_token_endpoint_audience boolean not null default false,
    add column external_registration boolean not null default false;
