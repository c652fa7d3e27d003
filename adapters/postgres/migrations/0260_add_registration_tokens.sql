-- Initial access tokens of organizations, with which clients register themselves as applications (RFC 7591).
create table registration_tokens (
    id            uuid primary key,
    org_id        uuid not null references organizations on delete cascade,
    name          text not null,
    prefix        text not null,
    token_hash    bytea not null constraint registration_tokens_hash_key unique,  -- SHA-256 of the whole token
    uses_left     integer not null check (uses_left >= 0),
    expires_at    timestamptz,
    created_by    uuid not null,  -- no foreign key: the account may be gone
    created_at    timestamptz not null,
    last_used_at  timestamptz
);
create index registration_tokens_by_age on registration_tokens (org_id, created_at, id);
-- The name of the token with which an application registered itself. Null: a member or a service account created it.
alter table services add column registered_with text;
