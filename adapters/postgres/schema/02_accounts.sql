-- Accounts: second factors, devices, one-time tokens, changes of the address, emails and their logs.

create table users (
    id                        uuid primary key,
    -- in canonical form, so that it is unique regardless of case
    email                     text not null constraint users_email_key unique,
    email_verified_at         timestamptz,  -- null again after a change of the address
    first_verified_at         timestamptz,  -- never null again
    password_hash             text,
    is_platform_owner         boolean not null default false,
    mfa_enabled_at            timestamptz,
    origin                    text not null check (origin in ('platform', 'api_key', 'scim', 'sign_up', 'connection')),
    -- no foreign key: deleting an organization would lock these accounts in any order
    origin_org_id             uuid,
    deactivated_at            timestamptz,  -- the account is closed since then
    anonymized_at             timestamptz,
    created_at                timestamptz not null,
    updated_at                timestamptz not null,
    -- for the foreign keys of service_users and end_users
    deactivated               boolean not null generated always as (deactivated_at is not null) stored,
    email_changed_at          timestamptz,  -- for the times that directories see
    -- this and the next three are claims of OpenID Connect; null: not set
    name                      text,
    picture                   text,
    locale                    text,
    zoneinfo                  text,
    profile_changed_at        timestamptz,
    password_changed_at       timestamptz,  -- set, changed or reset
    -- A platform owner, a directory and the user can close an account, and each can only undo their own
    -- closing. `directory_deactivated_at` is set only while the platform or the user has closed the
    -- account as well.
    platform_deactivated_at   timestamptz,
    directory_deactivated_at  timestamptz,
    -- the other claims about a user, by name (OpenID Connect Core section 5.1)
    profile_details           jsonb,
    closed_at                 timestamptz,
    -- when the closed account is erased; until then, an undo opens it again
    erase_at                  timestamptz,
    -- what authenticators know of the user: 64 random bytes, from the first registration on
    passkey_handle            bytea check (octet_length(passkey_handle) = 64),
    -- passkey_count and security_key_count change under the lock on the account
    passkey_count             smallint not null default 0,
    security_key_count        smallint not null default 0,
    -- since when sign-ins with a password ask for a passkey or security key
    passkey_second_at         timestamptz,
    -- the common salt of a set of backup codes, so that an attempt costs one hash
    backup_codes_salt         bytea,
    passkey_offered_at        timestamptz,  -- when a page last offered to create a passkey
    -- when the user was last reminded of a rule of a sign-in policy that starts later
    policy_reminded_at        timestamptz,
    -- when the link "This wasn't me" removed a factor that a sign-in policy asks for; until a recovery, the
    -- account gets no new factor
    recovery_required_at      timestamptz,
    -- when the user reported all passkeys as lost; 24 hours later, the user can remove them without showing a passkey
    passkey_wait_at           timestamptz,
    -- whether the email about the end of these 24 hours was queued
    passkey_wait_announced    boolean not null default false,
    constraint users_listed_key unique (id, email, deactivated),
    constraint users_closed_by_platform_check
        check (platform_deactivated_at is null or deactivated_at is not null),
    constraint users_closed_check check (closed_at is null or deactivated_at is not null and erase_at is not null),
    constraint users_closed_by_both_check
        check (directory_deactivated_at is null or platform_deactivated_at is not null or closed_at is not null)
);
create index users_platform_owners on users (id) where is_platform_owner;
create index users_never_verified on users (created_at) where first_verified_at is null;
-- With the address: a search for a part of it reads the whole index, and not the table.
create index users_by_age on users (created_at desc, id desc) include (email);
-- Accounts of a domain with its subdomains: a search by the start of the reversed domain.
create index users_created_by_organizations_by_domain on users (reverse('.' || split_part(email, '@', 2)) text_pattern_ops)
    where origin_org_id is not null;
create index users_to_erase on users (erase_at) where erase_at is not null;
-- Searches in the audit log find users by the start of their full name or of its last word.
create index users_by_name on users (lower(name) text_pattern_ops) where name is not null;
create index users_by_last_name on users (lower(substring(name from '[^ ]+$')) text_pattern_ops)
    where name is not null;
create index users_by_passkey_wait on users (passkey_wait_at) where passkey_wait_at is not null;

-- The secret of an authenticator app. It counts once `users.mfa_enabled_at` is set.
create table mfa (
    user_id    uuid primary key references users on delete cascade,
    secret     bytea not null,  -- base32, sealed
    setup_at   timestamptz not null,  -- a secret that is not confirmed is valid for a while only
    -- the time step of the newest accepted code: each works once (RFC 6238 section 5.2)
    last_step  bigint
);
create index mfa_pending on mfa (setup_at) where last_step is null;

create table backup_codes (
    user_id    uuid not null references users on delete cascade,
    code_hash  bytea not null,  -- Argon2id with the salt of the set
    used_at    timestamptz,
    primary key (user_id, code_hash)
);

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

-- The log of second factors. Organizations do not see it.
create table mfa_events (
    id               uuid primary key,
    user_id          uuid not null references users on delete cascade,
    event_type       text not null,
    success          boolean not null,
    actor_id         uuid,  -- null: the user
    impersonator_id  uuid,
    reason           text,
    address          text,
    agent            text,
    created_at       timestamptz not null
);
create index mfa_events_of_user on mfa_events (user_id, created_at desc, id desc);
create index mfa_events_by_type on mfa_events (event_type, created_at desc) include (user_id);
create index mfa_events_of_actor on mfa_events (actor_id, created_at desc, id desc) where actor_id is not null;
create index mfa_events_of_impersonator on mfa_events (impersonator_id, created_at desc, id desc)
    where impersonator_id is not null;

-- Each sign-in updates a device. No index has its time, and the pages have room, so the update writes no
-- index entries.
create table devices (
    id                uuid primary key,
    user_id           uuid not null references users on delete cascade,
    -- SHA-256 of the id that the client keeps; null: recognized by its user agent
    client_hash       bytea,
    name              text not null,
    device_type       text not null check (device_type in ('browser', 'mobile', 'desktop', 'cli')),
    browser           text not null,
    browser_version   text,
    os                text not null,
    os_version        text,
    last_used_at      timestamptz not null,
    last_ip           text,
    city              text,
    country           text,
    -- of the last sign-in, in hundredths
    risk_score        smallint not null check (risk_score between 0 and 100),
    risk_factors      text[] not null,
    mfa_at            timestamptz,  -- when the second factor was last verified on it
    trust_hash        bytea constraint devices_trust_key unique,  -- SHA-256 of the trust token
    trust_expires_at  timestamptz,
    created_at        timestamptz not null,
    updated_at        timestamptz not null,
    revoked_at        timestamptz,
    methods           text[] not null default '{}',  -- of the last sign-in, as in the audit log
    check ((trust_hash is null) = (trust_expires_at is null))
) with (fillfactor = 90);
create index devices_live_of_user on devices (user_id) where revoked_at is null;
create unique index devices_one_client on devices (user_id, client_hash)
    where client_hash is not null and revoked_at is null;

-- Passkeys, and security keys, which count only beside a first factor.
create table passkeys (
    id               uuid primary key,
    user_id          uuid not null references users on delete cascade,
    name             text not null,
    credential_id    bytea not null constraint passkeys_credential_key unique,
    public_key       bytea not null,
    sign_count       bigint not null,
    aaguid           uuid not null,
    backup_eligible  boolean not null,
    created_at       timestamptz not null,
    last_used_at     timestamptz,
    rp_id            text not null,  -- the RP ID that it was made for
    algorithm        smallint not null check (algorithm in (-8, -7, -257)),  -- COSE
    transports       text[] not null default '{}',
    backed_up        boolean not null default false,  -- as of the last ceremony
    refused_at       timestamptz,  -- the last impossible change
    kind             text not null default 'passkey' check (kind in ('passkey', 'security_key')),
    user_verified    boolean not null default true,  -- in any ceremony
    constraint passkeys_credential_check check (octet_length(credential_id) between 1 and 1023),
    constraint passkeys_count_check check (sign_count between 0 and 4294967295)
) with (fillfactor = 90);
create index passkeys_of_user on passkeys (user_id);

-- Deleted passkeys, which an undo restores.
create table former_passkeys (
    id               uuid primary key,
    user_id          uuid not null references users on delete cascade,
    name             text not null,
    credential_id    bytea not null,
    public_key       bytea not null,
    algorithm        smallint not null,
    rp_id            text not null,
    sign_count       bigint not null,
    aaguid           uuid not null,
    backup_eligible  boolean not null,
    backed_up        boolean not null,
    transports       text[] not null,
    created_at       timestamptz not null,
    last_used_at     timestamptz,
    refused_at       timestamptz,
    removed_at       timestamptz not null,
    kind             text not null default 'passkey',
    user_verified    boolean not null default true
);
create index former_passkeys_of_user on former_passkeys (user_id);
create index former_passkeys_by_age on former_passkeys (removed_at);
create index former_passkeys_of_credential on former_passkeys (credential_id);

-- Challenges that a ceremony used up. Unused challenges have no row (docs/adr/0040).
create table used_passkey_challenges (
    challenge_hash  bytea primary key,
    expires_at      timestamptz not null
);
create index used_passkey_challenges_by_age on used_passkey_challenges (expires_at);

-- The open recoveries, at most one per account. A used, canceled or replaced recovery has no row.
create table account_recoveries (
    id            uuid primary key,
    user_id       uuid not null unique references users on delete cascade,
    -- of the issuer; null for the platform. No foreign keys for org_id and issuer_id (docs/adr/0005)
    org_id        uuid,
    issuer_id     uuid not null,
    code_salt     bytea not null,
    code_hash     bytea not null,
    attempts      smallint not null default 0,
    browser_hash  bytea,  -- of the browser that gave the link and the code
    secret        bytea,  -- sealed: the secret for an authenticator app, made for this browser
    created_at    timestamptz not null,
    expires_at    timestamptz not null,
    check ((browser_hash is null) = (secret is null))
);
create index account_recoveries_by_age on account_recoveries (expires_at);

-- Links in emails: to verify an address, to reset a password.
create table one_time_tokens (
    purpose       text not null,
    token_hash    bytea not null,
    user_id       uuid not null references users on delete cascade,
    email         text not null,  -- the address that it was sent to, which it proves
    created_at    timestamptz not null,
    expires_at    timestamptz not null,
    used_at       timestamptz,
    org_id        uuid,  -- the organization that the page of the link is branded for
    next_path     text,  -- where the browser continues after the link
    browser_hash  bytea,  -- after a sign-up on our page: SHA-256 of the device cookie of the browser
    service_id    uuid,  -- the service that the user signed up for
    primary key (purpose, token_hash)
);
create index one_time_tokens_of_user on one_time_tokens (user_id, purpose);
create index one_time_tokens_by_expiry on one_time_tokens (expires_at);

-- The earlier addresses of an account. An anonymization removes these from logs, too.
create table former_addresses (
    user_id  uuid not null references users on delete cascade,
    email    text not null,
    until    timestamptz not null,
    primary key (user_id, email)
);

-- Changes of an account's address that its user requested. A change that is proved, canceled or expired
-- is no longer pending. It can be undone until `undo_until`.
create table email_changes (
    id               uuid primary key,
    -- the order of an account's changes, because times can be equal
    position         bigint generated by default as identity,
    user_id          uuid not null references users on delete cascade,
    session_id       uuid not null,  -- the session that requested the change
    old_email        text not null,
    new_email        text not null,
    requested_at     timestamptz not null,
    expires_at       timestamptz not null,  -- the new address must be proved before
    -- null: the old address was not verified, so the change cannot be undone
    undo_until       timestamptz,
    -- SHA-256; null until the notice to the old address is prepared
    undo_token_hash  bytea constraint email_changes_undo_key unique,
    proved_at        timestamptz,
    cancelled_at     timestamptz,
    undone_at        timestamptz
);
create index email_changes_of_user on email_changes (user_id, position desc);
create index email_changes_reserved on email_changes (old_email)
    where undo_until is not null and undone_at is null;
create index email_changes_by_age on email_changes (requested_at);

-- Emails about a way into an account that was added, changed or removed. Each has a link that undoes
-- this change and all later ones.
create table security_notices (
    id               uuid primary key,
    user_id          uuid not null references users on delete cascade,
    -- the session that made the change; null: none, such as after a reset of the password
    session_id       uuid,
    kind             text not null,  -- of the email
    detail           text,  -- the identity provider of a linked account
    address          text not null,  -- that the email went to
    created_at       timestamptz not null,
    undo_until       timestamptz not null,
    -- SHA-256; null until the email is prepared
    undo_token_hash  bytea constraint security_notices_token_key unique,
    undone_at        timestamptz,
    -- the identities that the change unlinked, without the provider's tokens, for the undo
    unlinked         jsonb
);
create index security_notices_of_user on security_notices (user_id, created_at);
create index security_notices_by_age on security_notices (undo_until);

-- The queue of emails.
create table mails (
    id                  uuid primary key,
    kind                text not null,
    address             text not null,
    token               bytea,  -- sealed; null before it is created and after the email was sent
    token_at            timestamptz,  -- when it was created, for the limit per recipient
    claims              integer not null default 0,
    attempts            integer not null default 0,
    last_failure        text,
    created_at          timestamptz not null,
    due_at              timestamptz not null,
    finished_at         timestamptz,
    outcome             text check (outcome in ('sent', 'dropped', 'given_up')),
    org_id              uuid,  -- the organization that the email is branded for
    -- the subscription that the email is about; it is not sent if this has ended
    subscription_id     uuid,
    -- Counts the emails that the organization's directory caused. A daily limit of N reads only the
    -- time of the Nth email before.
    directory_number    bigint,
    next_path           text,  -- as in one_time_tokens
    browser_hash        bytea,
    service_id          uuid,
    email_change_id     uuid references email_changes on delete cascade,
    secret              jsonb,  -- the secret that the email is about; the secret itself may be gone
    security_notice_id  uuid references security_notices on delete cascade,
    check ((finished_at is null) = (outcome is null))
);
create index mails_due on mails (due_at) where finished_at is null;
create index mails_finished on mails (finished_at) where finished_at is not null;
create index mails_to_address on mails (address, token_at);
create unique index mails_of_directories_by_number on mails (org_id, directory_number)
    where directory_number is not null;
create index mails_of_email_change on mails (email_change_id) where email_change_id is not null;
create index mails_of_security_notice on mails (security_notice_id) where security_notice_id is not null;

-- Wrong passwords and codes. Unlogged, like `rates`.
create unlogged table guesses (
    secret         text not null,
    subject        bytea not null,
    failures       integer not null,
    refused        boolean not null,  -- the verdict on the latest attempt
    started_at     timestamptz not null,
    blocked_until  timestamptz,
    expires_at     timestamptz not null,
    primary key (secret, subject)
);
create index guesses_by_expiry on guesses (expires_at);

-- The log of privacy requests. It outlives the accounts in it.
create table privacy_log (
    id          uuid primary key,
    event_type  text not null,
    user_id     uuid not null,
    actor_id    uuid not null,
    address     text,
    agent       text,
    created_at  timestamptz not null
);
create index privacy_log_of_actor on privacy_log (actor_id, created_at desc, id desc);
create index privacy_log_of_user on privacy_log (user_id, created_at desc, id desc);
