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

-- The second factors that a user switched off. An undo restores the one of its time.
create table former_mfa (
    id          uuid primary key,
    user_id     uuid not null references users on delete cascade,
    secret      bytea not null,
    setup_at    timestamptz not null,
    enabled_at  timestamptz not null,
    last_step   bigint,
    removed_at  timestamptz not null
);
create index former_mfa_of_user on former_mfa (user_id);
create index former_mfa_by_age on former_mfa (removed_at);

-- When its user deleted the account, and when it is erased. Until then it is closed, beside what the platform and the directory decide,
-- and an undo opens it again. While closed_at is set, directory_deactivated_at has the time of the directory, as it has for the platform.
alter table users
    add column closed_at timestamptz,
    add column erase_at timestamptz,
    add constraint users_closed_check check (closed_at is null or deactivated_at is not null and erase_at is not null) not valid,
    drop constraint users_closed_by_both_check,
    add constraint users_closed_by_both_check
        check (directory_deactivated_at is null or platform_deactivated_at is not null or closed_at is not null) not valid;
create index users_to_erase on users (erase_at) where erase_at is not null;
