-- The logout tokens of identity providers that were used, each of which works once (Back-Channel Logout section 2.6).
create table used_logout_tokens (
    org_id         uuid not null references organizations on delete cascade,
    connection_id  uuid not null,
    token_hash     bytea not null,  -- SHA-256 of `jti`
    expires_at     timestamptz not null,
    primary key (connection_id, token_hash),
    foreign key (org_id, connection_id) references connections (org_id, id) on delete cascade
);
create index used_logout_tokens_of_organization on used_logout_tokens (org_id, connection_id);
