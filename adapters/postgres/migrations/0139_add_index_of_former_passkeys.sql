-- concurrently
create index concurrently if not exists former_passkeys_of_credential on former_passkeys (credential_id);
