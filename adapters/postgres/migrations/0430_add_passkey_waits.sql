-- `passkey_wait_at`: when the user reported all passkeys as lost. 24 hours later, the user can remove them without showing one.
-- `passkey_wait_announced`: whether the email about the end of these 24 hours was queued. The previous release ignores both.
alter table users
    add column passkey_wait_at         timestamptz,
    add column passkey_wait_announced  boolean not null default false;
