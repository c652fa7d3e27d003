-- A domain leads to a provider of the platform, or to a connection of the organization.
alter table home_realm_routes
    alter column provider drop not null,
    add column connection_id uuid,
    add constraint home_realm_routes_target_check check (num_nulls(provider, connection_id) = 1),
    add constraint home_realm_routes_connection_fkey foreign key (org_id, connection_id)
        references connections (org_id, id) on delete cascade;
