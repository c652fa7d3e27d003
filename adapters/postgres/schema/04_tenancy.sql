-- Organizations: tiers, members, invitations, settings.

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

-- A name without the differences that readers overlook: case, accents, spaces, punctuation, and letters
-- of other alphabets and digits that look like Latin letters. 'i' and 'l' are one letter, and so are
-- 'rn' and 'm'.
create function canonical_name(name text) returns text language sql immutable parallel safe return
    regexp_replace(replace(replace(translate(lower(translate(normalize(name, NFKD),
        'авсԁеѕһіјкӏмнопрԛтуүхԝАВСЕНІЈКӀМОРЅТУХԚԜαβγεηικνορτυχωΑΒΕΖΗΙΚΜΝΟΡΤΥΧ013457|@$',
        'abcdeshijklmhonpqtyyxwabcehijklmopstyxqwabyenikvoptuxwabezhikmnoptyxoleastlas')),
        'i', 'l'), 'rn', 'm'), 'vv', 'w'),
    '[[:space:][:punct:]\u0300-\u036f\u00ad\u2000-\u2bff\u3000-\u303f\ufeff]', '', 'g');

create table organizations (
    id                  uuid primary key,
    slug                text not null constraint organizations_slug_key unique,
    name                text not null,
    status              text not null check (status in ('pending', 'active', 'suspended', 'rejected')),
    created_at          timestamptz not null,
    tier_id             uuid references tiers,
    max_services        integer check (max_services >= 0),  -- null: the tier's number
    max_users           integer check (max_users >= 0),
    device_trust_days   smallint not null default 30 check (device_trust_days between 1 and 90),
    -- kept by the statements that add or remove memberships
    member_count        integer not null default 0,
    updated_at          timestamptz not null,
    approved_at         timestamptz,
    rejected_reason     text,
    suspended_reason    text,
    members_changed_at  timestamptz,  -- for the time of the group that directories see
    scim_external_id    text,  -- the id that a directory gave to the group
    -- whether members may use personal access tokens
    personal_tokens     boolean not null default true,
    canonical_name      text not null generated always as (canonical_name(name)) stored,
    canonical_slug      text not null generated always as (canonical_name(slug)) stored
);
create index organizations_by_age on organizations (created_at desc, id desc);
create index organizations_by_canonical_name on organizations (canonical_name);
create index organizations_by_canonical_slug on organizations (canonical_slug);

-- No cascade from `users`: memberships are counted, so they are removed and counted out first.
create table memberships (
    id            uuid primary key,
    org_id        uuid not null references organizations on delete cascade,
    user_id       uuid not null references users,
    role          text not null check (role in ('owner', 'admin', 'member')),
    created_at    timestamptz not null,
    -- when the user took part in the organization, which gives it control over the account
    confirmed_at  timestamptz,
    email         text not null,  -- a copy of `users.email`: a search reads the index alone
    -- the service account that gave a role above member; its end makes the user a member again
    -- (security R-4)
    promoted_by   uuid,
    constraint memberships_org_user_key unique (org_id, user_id)
);
create unique index memberships_one_owner on memberships (org_id) where role = 'owner';
create index memberships_of_user on memberships (user_id);
create index memberships_by_age on memberships (org_id, created_at, id);
create index memberships_by_role on memberships (org_id, role, created_at, id);
create index memberships_by_email on memberships (org_id, email, id) include (role, created_at);
create index memberships_promoted on memberships (org_id, promoted_by) where promoted_by is not null;

-- The lock makes a concurrent change of the address wait, so that its trigger finds the membership.
create function set_member_email() returns trigger language plpgsql as $$
begin
    select email into new.email from users where id = new.user_id for key share;
    return new;
end $$;
create trigger member_email before insert on memberships for each row execute function set_member_email();

create function change_member_email() returns trigger language plpgsql as $$
begin
    update memberships set email = new.email where user_id = new.id;
    return null;
end $$;
create trigger member_email_changed after update of email on users
    for each row when (old.email is distinct from new.email) execute function change_member_email();

create table invitations (
    id                  uuid primary key,
    org_id              uuid not null references organizations on delete cascade,
    email               text not null,
    role                text not null check (role in ('admin', 'member')),
    invited_by          uuid not null,  -- no foreign key: the account may be gone
    status              text not null
        check (status in ('pending', 'accepted', 'rejected', 'cancelled', 'expired')),
    token_hash          bytea not null constraint invitations_token_key unique,
    expires_at          timestamptz not null,
    created_at          timestamptz not null,
    ended_at            timestamptz,
    -- Of the token in the response to the inviter. If set, only the email has the token of
    -- `token_hash`, and accepting with that one proves the mailbox. Null: one token for both, which
    -- proves nothing.
    inviter_token_hash  bytea constraint invitations_inviter_token_hash_key unique,
    check ((status = 'pending') = (ended_at is null))
);
create unique index invitations_one_pending on invitations (org_id, email) where status = 'pending';
create index invitations_by_age on invitations (org_id, created_at desc, id desc);
create index invitations_by_status on invitations (org_id, status, created_at desc, id desc);
create index invitations_of_inviter on invitations (org_id, invited_by) where status = 'pending';
create index invitations_expiring on invitations (expires_at) where status = 'pending';
create index invitations_of_email on invitations (email, status);
-- Invitations of a domain with its subdomains, as for users.
create index invitations_pending_by_domain on invitations (reverse('.' || split_part(email, '@', 2)) text_pattern_ops)
    where status = 'pending';

create table smtp_settings (
    org_id      uuid primary key references organizations on delete cascade,
    host        text not null,
    port        integer not null,
    username    text,
    password    bytea,  -- sealed
    from_email  text not null,
    from_name   text,
    tls         boolean not null,
    updated_at  timestamptz not null,
    check ((username is null) = (password is null))
);

create table branding (
    org_id         uuid primary key references organizations on delete cascade,
    logo_url       text,
    primary_color  text,
    product_name   text,
    updated_at     timestamptz not null
);

create table domains (
    org_id       uuid primary key references organizations on delete cascade,
    domain       text not null,
    challenge    text not null,  -- the content of the TXT record that proves the domain
    verified_at  timestamptz,
    created_at   timestamptz not null
);
create unique index domains_one_organization on domains (domain) where verified_at is not null;

create table home_realm_routes (
    org_id    uuid not null references organizations on delete cascade,
    domain    text not null,
    provider  text not null check (provider in ('codehost', 'websuite', 'officesuite')),
    primary key (org_id, domain)
);
