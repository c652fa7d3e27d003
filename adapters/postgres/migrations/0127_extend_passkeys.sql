-- The data of a passkey for its ceremonies. Version 0.9.0 creates none, so the table is empty.
alter table passkeys
    add column rp_id       text not null,                  -- the RP ID that it was made for
    add column algorithm   smallint not null check (algorithm in (-8, -7, -257)),  -- COSE
    add column transports  text[] not null default '{}',
    add column backed_up   boolean not null default false,  -- as of the last ceremony
    add column refused_at  timestamptz,  -- the last impossible change
    add constraint passkeys_credential_check check (octet_length(credential_id) between 1 and 1023),
    add constraint passkeys_count_check check (sign_count between 0 and 4294967295);
alter table passkeys set (fillfactor = 90);
