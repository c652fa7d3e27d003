-- The code knows the connections. Apart from the others, so that no transaction waits for two tables.
alter table home_realm_routes drop constraint home_realm_routes_provider_check;
