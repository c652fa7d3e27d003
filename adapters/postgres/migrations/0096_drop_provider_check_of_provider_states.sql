-- The code knows the connections. Apart from the others, so that no transaction waits for two tables.
alter table provider_states drop constraint provider_states_provider_check;
