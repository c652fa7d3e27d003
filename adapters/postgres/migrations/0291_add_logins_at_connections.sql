-- The sign-ins at the connections of organizations. The proofs of sessions name them. A sign-out at either end needs them.
create table connection_logins (
    id                uuid primary key,
    org_id            uuid not null references organizations on delete cascade,
    connection_id     uuid not null,
    user_id           uuid not null references users on delete cascade,
    provider_session  text,  -- `sid` of an ID token, or the SessionIndex of an assertion
    logout            bytea not null,  -- sealed: the ID token, or the NameID
    created_at        timestamptz not null,
    ends_at           timestamptz not null,  -- no session names it afterwards
    foreign key (org_id, connection_id) references connections (org_id, id) on delete cascade
);
create index connection_logins_of_organization on connection_logins (org_id, connection_id, provider_session);
create index connection_logins_of_user on connection_logins (user_id);
create index connection_logins_by_end on connection_logins (ends_at);
