-- The external id that a directory gives to the group of a service
alter table services add column scim_external_id text;
