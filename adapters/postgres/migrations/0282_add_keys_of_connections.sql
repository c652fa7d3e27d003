-- Our own keys at the identity providers of organizations, each with a certificate that we have signed with it.
create table connection_keys (
    id             uuid primary key,
    org_id         uuid not null references organizations on delete cascade,
    connection_id  uuid not null,
    state          text not null check (state in ('active', 'next', 'previous')),
    certificate    text not null,  -- PEM
    private_key    bytea not null,  -- sealed
    valid_from     timestamptz not null,
    valid_until    timestamptz not null,
    created_at     timestamptz not null,
    kept_until     timestamptz,
    constraint connection_keys_state_key unique (connection_id, state),
    foreign key (org_id, connection_id) references connections (org_id, id) on delete cascade
);
create index connection_keys_of_organization on connection_keys (org_id, connection_id);

-- The certificates with which an identity provider signs.
create table connection_certificates (
    org_id         uuid not null references organizations on delete cascade,
    connection_id  uuid not null,
    fingerprint    text not null,  -- SHA-256 in hexadecimal
    certificate    text not null,  -- PEM
    valid_from     timestamptz not null,
    valid_until    timestamptz not null,
    source         text not null check (source in ('metadata', 'admin')),
    is_active      boolean not null,
    added_at       timestamptz not null,
    primary key (connection_id, fingerprint),
    foreign key (org_id, connection_id) references connections (org_id, id) on delete cascade
);
create index connection_certificates_of_organization on connection_certificates (org_id, connection_id);
