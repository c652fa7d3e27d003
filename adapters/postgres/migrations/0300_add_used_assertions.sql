-- Assertions of SAML identity providers that signed a user in. Each works once (security X-16).
create table used_assertions (
    org_id          uuid not null references organizations on delete cascade,
    connection_id   uuid not null,
    assertion_hash  bytea not null,  -- SHA-256 of its ID
    expires_at      timestamptz not null,
    primary key (connection_id, assertion_hash),
    foreign key (org_id, connection_id) references connections (org_id, id) on delete cascade
);
create index used_assertions_of_organization on used_assertions (org_id, connection_id);
create index used_assertions_by_age on used_assertions (expires_at);
