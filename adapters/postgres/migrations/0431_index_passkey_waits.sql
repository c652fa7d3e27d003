-- concurrently
create index concurrently if not exists users_by_passkey_wait on users (passkey_wait_at) where passkey_wait_at is not null;
