-- Tiers, the rest of the organization, invitations, impersonated sessions, and the totals that pages show.

create table tiers (
    id                    uuid primary key,
    name                  text not null constraint tiers_name_key unique,
    display_name          text not null,
    default_max_services  integer not null check (default_max_services >= 0),
    default_max_users     integer not null check (default_max_users >= 0),
    price_cents           integer not null check (price_cents >= 0)
);
insert into tiers (id, name, display_name, default_max_services, default_max_users, price_cents) values
    ('00000000-0000-4000-8000-000000000001', 'free', 'Free', 3, 100, 0),
    ('00000000-0000-4000-8000-000000000002', 'professional', 'Professional', 10, 1000, 0);

alter table organizations
    add column tier_id            uuid references tiers,
    add column max_services       integer check (max_services >= 0),  -- null: what the tier says
    add column max_users          integer check (max_users >= 0),
    add column device_trust_days  smallint not null default 30 check (device_trust_days between 1 and 90),
    add column member_count       integer not null default 0,         -- kept by whoever adds or removes a membership
    add column updated_at         timestamptz,
    add column approved_at        timestamptz,
    add column rejected_reason    text,
    add column suspended_reason   text;
update organizations o set
    tier_id = '00000000-0000-4000-8000-000000000001',
    updated_at = created_at,
    member_count = (select count(*) from memberships m where m.org_id = o.id);
alter table organizations alter column updated_at set not null;
create index organizations_by_age on organizations (created_at desc, id desc);

-- Every membership is counted, so none goes by itself when an account does: whoever deletes the account must count them out first.
alter table memberships
    drop constraint memberships_user_id_fkey,
    add constraint memberships_user_id_fkey foreign key (user_id) references users on delete no action;
-- Confirmed: the member took part in it, so that the organization has a say about the account (the terms of security.md).
alter table memberships add column confirmed_at timestamptz;
create index memberships_by_age on memberships (org_id, created_at, id);
create index memberships_by_role on memberships (org_id, role, created_at, id);

create table invitations (
    id          uuid primary key,
    org_id      uuid not null references organizations on delete cascade,
    email       text not null,
    role        text not null check (role in ('admin', 'member')),
    invited_by  uuid not null,  -- the account may be gone by now
    status      text not null check (status in ('pending', 'accepted', 'rejected', 'cancelled', 'expired')),
    token_hash  bytea not null constraint invitations_token_key unique,
    expires_at  timestamptz not null,
    created_at  timestamptz not null,
    ended_at    timestamptz,
    check ((status = 'pending') = (ended_at is null))
);
create unique index invitations_one_pending on invitations (org_id, email) where status = 'pending';
create index invitations_by_age on invitations (org_id, created_at desc, id desc);
create index invitations_by_status on invitations (org_id, status, created_at desc, id desc);
create index invitations_of_inviter on invitations (org_id, invited_by) where status = 'pending';
create index invitations_of_email on invitations (email) where status = 'pending';
create index invitations_expiring on invitations (expires_at) where status = 'pending';

alter table sessions add column impersonator_id uuid references users on delete cascade;
create index sessions_of_impersonator on sessions (impersonator_id) where impersonator_id is not null;

-- What is written in passing (a session's context, logins, events, audit entries) does not point to the organization: a foreign key would
-- lock its row, after the account's and so against the order of locks, and millions of rows would have to go in the transaction that
-- deletes it. A tombstone tells the housekeeper what to remove. Nor does an account point to where it was born: a deletion would lock such
-- accounts in any order; what stays is an id that belongs to nobody, ever. ops/decisions/0005.
alter table sessions drop constraint sessions_org_id_fkey;
alter table login_events drop constraint login_events_org_id_fkey;
alter table events drop constraint events_org_id_fkey;
alter table audit_log drop constraint audit_log_org_id_fkey;
alter table users drop constraint users_origin_org_id_fkey;
drop index sessions_of_organization;  -- only the foreign key looked for sessions by their organization alone
create table deleted_organizations (
    id          uuid primary key,
    deleted_at  timestamptz not null
);
-- What the housekeeper finds them by. Each has an order that no other index has: whoever asks for it gets this one, whatever the planner
-- expects to find.
create index events_of_organization on events (org_id, name) where org_id is not null;
create index login_events_of_organization on login_events (org_id, created_at desc) where org_id is not null;

-- One index for each way of reading the log; newest first.
create index audit_log_by_target on audit_log (org_id, target_type, target_id, created_at desc, id desc);
create index audit_log_by_target_type on audit_log (org_id, target_type, created_at desc, id desc);
create index audit_log_by_action on audit_log (org_id, action, created_at desc, id desc);
create index audit_log_by_actor on audit_log (org_id, actor_id, created_at desc, id desc);
create index audit_log_by_nobody on audit_log (org_id, created_at desc, id desc) where actor_id is null;
-- How many entries each organization has, kept by whoever adds them.
create table audit_totals (
    org_id       uuid not null,
    action       text not null,
    target_type  text not null,
    total        bigint not null,
    primary key (org_id, action, target_type)
);
insert into audit_totals (org_id, action, target_type, total)
select org_id, action, target_type, count(*) from audit_log where org_id is not null group by org_id, action, target_type;
