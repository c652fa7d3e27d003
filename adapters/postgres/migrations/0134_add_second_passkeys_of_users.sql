-- `passkey_second_at`: since when sign-ins with a password ask for a passkey or security key. Version 0.9.0 does not know it, and
-- signs these users in with the password alone. `backup_codes_salt` is that of the backup codes; accounts with an authenticator
-- app have it in `mfa`, too. The number of security keys changes under the lock on the account.
alter table users
    add column security_key_count  smallint not null default 0,
    add column passkey_second_at   timestamptz,
    add column backup_codes_salt   bytea;
