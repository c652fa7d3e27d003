-- When a page last offered the user to create a passkey.
alter table users add column passkey_offered_at timestamptz;
