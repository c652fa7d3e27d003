-- Sign-ins by a link or a code in an email. `id` is also the id of the email in `mails`. For an address with an account,
-- the mailer sets the account, the hash of the link and the code. The code is encrypted: a hash of six digits would not hide them.
create table email_sign_ins (
    id            uuid primary key,
    request_hash  bytea not null unique,  -- SHA-256 of the secret of the client that asked
    in_browser    boolean not null,       -- our own pages asked, not an API client
    email         text not null,
    org_id        uuid,                   -- the organization of the service
    service_id    uuid references services on delete cascade,
    after         text not null,          -- the path where the browser continues
    saml_state    text,
    address       text,
    agent         text,
    city          text,
    country       text,
    created_at    timestamptz not null,
    expires_at    timestamptz not null,
    user_id       uuid references users on delete cascade,
    link_hash     bytea unique,
    code          bytea,
    failures      integer not null default 0,
    used_at       timestamptz
);
create index email_sign_ins_of_address on email_sign_ins (email);
create index email_sign_ins_of_user on email_sign_ins (user_id) where user_id is not null;
create index email_sign_ins_of_service on email_sign_ins (service_id) where service_id is not null;
create index email_sign_ins_by_expiry on email_sign_ins (expires_at);

-- Null: as the platform
alter table services add column email_sign_in boolean;
