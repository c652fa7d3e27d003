-- The identities that a change unlinked, so that its undo link can link them again: a list of objects, without the provider's tokens.
alter table security_notices add column unlinked jsonb;
