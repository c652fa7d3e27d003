-- The emails about a way into an account that was added, changed or removed. Each has a link that undoes this and everything since.
create table security_notices (
    id               uuid primary key,
    user_id          uuid not null references users on delete cascade,
    session_id       uuid,           -- the session that made the change; null: none, such as after a reset of the password
    kind             text not null,  -- that of the email
    detail           text,           -- of a linked account, the identity provider
    address          text not null,  -- that the email went to
    created_at       timestamptz not null,
    undo_until       timestamptz not null,
    undo_token_hash  bytea constraint security_notices_token_key unique,  -- SHA-256; null until the email is prepared
    undone_at        timestamptz
);
create index security_notices_of_user on security_notices (user_id, created_at);
create index security_notices_by_age on security_notices (undo_until);

alter table mails add column security_notice_id uuid references security_notices on delete cascade;
create index mails_of_security_notice on mails (security_notice_id) where security_notice_id is not null;

-- The undo links of changes of the address, which an earlier release kept with the change
insert into security_notices (id, user_id, session_id, kind, address, created_at, undo_until, undo_token_hash, undone_at)
select id, user_id, session_id, 'email_change_requested', old_email, requested_at, undo_until, undo_token_hash, undone_at
from email_changes where undo_until > now();
update mails set security_notice_id = email_change_id
where kind = 'email_change_requested' and finished_at is null and email_change_id in (select id from security_notices);

-- A second factor that its user switched off. An undo restores it.
create table former_mfa (
    user_id     uuid primary key references users on delete cascade,
    secret      bytea not null,
    setup_at    timestamptz not null,
    enabled_at  timestamptz not null,
    last_step   bigint,
    removed_at  timestamptz not null
);
create index former_mfa_by_age on former_mfa (removed_at);

-- When the account, which its user deleted, is erased. Until then it is closed, and an undo opens it again.
alter table users add column erase_at timestamptz;
create index users_to_erase on users (erase_at) where erase_at is not null;
