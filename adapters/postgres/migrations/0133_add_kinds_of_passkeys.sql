-- A security key counts only beside a first factor. Version 0.9.0 creates no passkeys, and earlier revisions no security keys.
alter table passkeys
    add column kind           text not null default 'passkey' check (kind in ('passkey', 'security_key')),
    add column user_verified  boolean not null default true;  -- in any ceremony
alter table former_passkeys
    add column kind           text not null default 'passkey',
    add column user_verified  boolean not null default true;
