-- What a session has verified of a reauthentication that is not complete yet: the code that was emailed for it, and a sign-in at an
-- identity provider that the second factor must follow.
create table reauthentications (
    session_id       uuid primary key references sessions on delete cascade,
    address_hash     bytea,  -- SHA-256 of the address that the code was sent to
    code_salt        bytea,
    code_hash        bytea,
    code_expires_at  timestamptz,
    failures         integer not null default 0,  -- wrong codes
    provider         text,
    provider_at      timestamptz
);

-- A ticket for the identity provider belongs to a session and, if there is one, to the browser of this session.
alter table link_tickets add column browser_session_id uuid;
alter table link_tickets add column after text;  -- null: link an identity; else reauthenticate, and continue there
alter table provider_states add column browser_session_id uuid;
alter table provider_states add column reauthenticates boolean not null default false;

-- Forms that were sent with a sign-in that was too old. They are sent again after a reauthentication in the same session. The fields are
-- sealed, because they can contain secrets.
create table kept_forms (
    id          uuid primary key,
    session_id  uuid not null references sessions on delete cascade,
    path        text not null,
    label       text not null,
    fields      bytea not null,
    created_at  timestamptz not null,
    expires_at  timestamptz not null
);
create index kept_forms_of_session on kept_forms (session_id);
create index kept_forms_by_expiry on kept_forms (expires_at);
