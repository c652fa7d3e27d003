-- Of a policy that a member with fewer rights than the owner has changed: the rules and the list of break glass without what they added,
-- to which the owner can return. Null: all of it is the owner's.
alter table sign_in_policies add column owner_rules jsonb;
alter table sign_in_policies add column owner_listed uuid[];
