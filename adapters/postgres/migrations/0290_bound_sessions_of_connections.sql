-- The only organization in which the session is good, because it began at a connection of this organization. Null: the session has a
-- proof of the account's own. No foreign key: deleting the organization must not lift the bound.
alter table sessions add column bounded_to uuid;
