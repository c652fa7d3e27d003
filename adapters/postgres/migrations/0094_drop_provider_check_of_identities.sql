-- The code knows the connections. Apart from the others, so that no transaction waits for two tables.
alter table identities drop constraint identities_provider_check;
