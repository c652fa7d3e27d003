-- The RP ID of all passkeys: the host of the base URL when the first one was added. It stays, also if the base URL changes.
alter table issuer add column rp_id text;
