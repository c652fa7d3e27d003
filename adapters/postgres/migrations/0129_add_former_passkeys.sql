-- Deleted passkeys, which an undo restores.
create table former_passkeys (
    id               uuid primary key,
    user_id          uuid not null references users on delete cascade,
    name             text not null,
    credential_id    bytea not null,
    public_key       bytea not null,
    algorithm        smallint not null,
    rp_id            text not null,
    sign_count       bigint not null,
    aaguid           uuid not null,
    backup_eligible  boolean not null,
    backed_up        boolean not null,
    transports       text[] not null,
    created_at       timestamptz not null,
    last_used_at     timestamptz,
    refused_at       timestamptz,
    removed_at       timestamptz not null
);
create index former_passkeys_of_user on former_passkeys (user_id);
create index former_passkeys_by_age on former_passkeys (removed_at);
