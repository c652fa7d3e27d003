-- `passkey_handle` is what authenticators know of a user: 64 random bytes, from the first registration on.
-- `passkey_count` changes under the lock on the account.
alter table users
    add column passkey_handle  bytea check (octet_length(passkey_handle) = 64),
    add column passkey_count   smallint not null default 0;
