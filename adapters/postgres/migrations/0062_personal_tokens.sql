-- Personal access tokens. Each one is backed by a session, so everything that ends the sessions of its user ends it too.
alter table sessions add column personal_token boolean not null default false;

create table personal_tokens (
    session_id    uuid primary key references sessions on delete cascade,
    org_id        uuid references organizations on delete cascade,  -- null: acts on the user's own account
    token_hash    bytea not null constraint personal_tokens_hash_key unique,  -- SHA-256
    name          text not null,
    prefix        text not null,
    scopes        text[] not null,
    created_at    timestamptz not null,
    expires_at    timestamptz not null,  -- that of the session, which never moves
    last_used_at  timestamptz,
    announced     smallint  -- the days before the end that were announced last
);
create index personal_tokens_of_organization on personal_tokens (org_id, created_at desc, session_id desc) where org_id is not null;
create index personal_tokens_by_expiry on personal_tokens (expires_at);

-- Whether members may use personal access tokens in the organization.
alter table organizations add column personal_tokens boolean not null default true;

-- What an email about a secret says. The secret may be gone when it is sent.
alter table mails add column secret jsonb;
