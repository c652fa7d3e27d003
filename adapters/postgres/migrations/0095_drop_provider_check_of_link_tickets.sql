-- The code knows the connections. Apart from the others, so that no transaction waits for two tables.
alter table link_tickets drop constraint link_tickets_provider_check;
