-- The connections of organizations stand beside those of the platform, which have no organization and no settings here.
alter table connections
    drop constraint connections_slug_key,
    add constraint connections_of_organizations_key unique using index connections_of_organizations_key,
    add constraint connections_id_key unique using index connections_id_key,
    add column name                  text,
    add column preset                text,
    add column state                 text not null default 'active' check (state in ('draft', 'active', 'inactive')),
    add column settings              jsonb,  -- core/federation/connections/model/settings.py
    add column mapping               jsonb,  -- core/federation/connections/model/mapping.py
    add column client_secret         bytea,  -- sealed
    add column client_secret_set_at  timestamptz,
    add column created_at            timestamptz,
    add column first_activated_at    timestamptz,
    add constraint connections_secret_check check (num_nulls(client_secret, client_secret_set_at) in (0, 2)),
    -- Version 0.9.0 finds the connections of the platform by their slugs alone.
    add constraint connections_of_organizations_check check (
        org_id is null
        or num_nulls(name, settings, mapping, created_at) = 0 and protocol in ('oidc', 'saml')
           and slug not in ('codehost', 'websuite', 'officesuite'));
