-- The number of users with a passkey or security key. Null: version 0.9.0 counted the day.
alter table population_figures add column passkeys bigint;
