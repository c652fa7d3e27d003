-- OpenID Connect: what an application was granted, and how its user authenticated.

alter table sessions
    add column authenticated_at    timestamptz,  -- null: when the session was created
    add column second_factor       boolean not null default false,  -- whether that authentication used it; a trusted device does not
    add column browser_session_id  uuid,         -- in which the user authorized the application
    add column scope               text[],       -- null: the application did not ask for OpenID Connect
    add column id_token_claims     text[],       -- the names in the parameter `claims`
    add column userinfo_claims     text[],
    add column resource            text;         -- the audience of the access tokens (RFC 8707)
create index sessions_of_browser_session on sessions (browser_session_id) where browser_session_id is not null and ended_at is null;

alter table authorization_codes
    add column scope            text[],
    add column id_token_claims  text[],
    add column userinfo_claims  text[],
    add column resource         text,
    add column nonce            text;

alter table device_codes
    add column scope     text[];

alter table services
    add column is_trusted       boolean not null default false,  -- confirmed members are not asked for their consent
    add column id_token_claims  boolean not null default true;   -- the claims of granted scopes stand in the ID token, too

-- What users allowed an application to see.
create table consents (
    user_id     uuid not null references users on delete cascade,
    org_id      uuid not null,
    service_id  uuid not null references services on delete cascade,
    scope       text[] not null,
    granted_at  timestamptz not null,
    primary key (user_id, service_id)
);
create index consents_of_service on consents (service_id);
