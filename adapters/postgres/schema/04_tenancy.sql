-- Organizations: tiers, roles, members, invitations, groups, attributes, settings.

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
    id                      uuid primary key,
    slug                    text not null constraint organizations_slug_key unique,
    name                    text not null,
    status                  text not null check (status in ('pending', 'active', 'suspended', 'rejected')),
    created_at              timestamptz not null,
    tier_id                 uuid references tiers,
    max_services            integer check (max_services >= 0),  -- null: the tier's number
    max_users               integer check (max_users >= 0),
    device_trust_days       smallint not null default 30 check (device_trust_days between 1 and 90),
    -- kept by the statements that add or remove memberships
    member_count            integer not null default 0,
    updated_at              timestamptz not null,
    approved_at             timestamptz,
    rejected_reason         text,
    suspended_reason        text,
    members_changed_at      timestamptz,  -- for the time of the group that directories see
    scim_external_id        text,  -- the id that a directory gave to the group
    -- whether members may use personal access tokens
    personal_tokens         boolean not null default true,
    canonical_name          text not null generated always as (canonical_name(name)) stored,
    canonical_slug          text not null generated always as (canonical_name(slug)) stored,
    members_see_end_users   boolean not null default true,  -- whether the role `member` sees the users of applications
    sign_in_policy_version  bigint,  -- of the organization's sign-in policy; null: it has none
    maps_groups             boolean not null default false  -- whether groups of the organization can give rights
);
create index organizations_by_age on organizations (created_at desc, id desc);
create index organizations_by_canonical_name on organizations (canonical_name);
create index organizations_by_canonical_slug on organizations (canonical_slug);

-- The only list of built-in roles in the database. A test compares the list with the roles of the code.
create function is_role(name text) returns boolean language sql immutable parallel safe return
    name in ('owner', 'admin', 'member');

-- The roles that organizations define themselves. Their names stand in `memberships.role` and the like,
-- beside the built-in names.
create table organization_roles (
    id            uuid primary key,
    org_id        uuid not null references organizations on delete cascade,
    slug          text not null check (slug ~ '^[a-z][a-z0-9_-]{0,49}$' and not is_role(slug)),
    name          text not null,
    description   text not null,
    capabilities  text[] not null check (not capabilities @> array['organization.own']),
    version       integer not null default 1,  -- starts at 1, and grows with each change of the role
    created_at    timestamptz not null,
    updated_at    timestamptz not null,
    constraint organization_roles_key unique (org_id, slug)
);

-- Set the id of the organization role that a row names. The lock makes a deletion of the role wait, or finds
-- the role deleted.
create function set_role_id() returns trigger language plpgsql as $$
begin
    new.role_id := null;
    if not is_role(new.role) then
        select id into new.role_id from organization_roles where org_id = new.org_id and slug = new.role for key share;
        if new.role_id is null then
            raise foreign_key_violation using message = 'the organization has no such role', constraint = 'organization_roles_exist';
        end if;
    end if;
    return new;
end $$;

-- No cascade from `users`: memberships are counted, so they are removed and counted out first.
create table memberships (
    id            uuid primary key,
    org_id        uuid not null references organizations on delete cascade,
    user_id       uuid not null references users,
    role          text not null,
    created_at    timestamptz not null,
    -- when the user took part in the organization, which gives it control over the account
    confirmed_at  timestamptz,
    email         text not null,  -- a copy of `users.email`: a search reads the index alone
    -- the service account that gave a role above member; its end makes the user a member again
    -- (security R-4)
    promoted_by   uuid,
    role_id       uuid references organization_roles,
    constraint memberships_role_check check (role_id is not null or is_role(role)),
    constraint memberships_org_user_key unique (org_id, user_id)
);
create unique index memberships_one_owner on memberships (org_id) where role = 'owner';
create index memberships_of_user on memberships (user_id);
create index memberships_by_age on memberships (org_id, created_at, id);
create index memberships_by_role on memberships (org_id, role, created_at, id);
create index memberships_by_email on memberships (org_id, email, id) include (role, created_at);
create index memberships_promoted on memberships (org_id, promoted_by) where promoted_by is not null;
create index memberships_of_role on memberships (role_id) where role_id is not null;
create trigger role_id before insert or update of role on memberships
    for each row when (new.role_id is not null or not is_role(new.role)) execute function set_role_id();

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
    role                text not null,
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
    role_id             uuid references organization_roles,
    -- an invitation that has ended keeps the name of a deleted role
    constraint invitations_role_check
        check ((role_id is not null or is_role(role) or status <> 'pending') and role <> 'owner'),
    check ((status = 'pending') = (ended_at is null))
);
create unique index invitations_one_pending on invitations (org_id, email) where status = 'pending';
create index invitations_by_age on invitations (org_id, created_at desc, id desc);
create index invitations_by_status on invitations (org_id, status, created_at desc, id desc);
create index invitations_of_inviter on invitations (org_id, invited_by) where status = 'pending';
create index invitations_expiring on invitations (expires_at) where status = 'pending';
create index invitations_of_email on invitations (email, status);
create index invitations_of_role on invitations (role_id) where role_id is not null;
-- Invitations of a domain with its subdomains, as for users.
create index invitations_pending_by_domain on invitations (reverse('.' || split_part(email, '@', 2)) text_pattern_ops)
    where status = 'pending';
create trigger role_id before insert or update of role on invitations
    for each row when (new.role_id is not null or not is_role(new.role)) execute function set_role_id();

-- The groups of organizations. A group can give its users applications and rights.
create table groups (
    id                  uuid primary key,
    org_id              uuid not null references organizations on delete cascade,
    name                text not null,
    name_key            text not null,  -- the name without regard to case (core/tenancy/model/groups.py)
    description         text,
    external_id         text,  -- of a group of the directory
    scim_token_id       uuid,  -- the directory that created the group; it may be revoked; null: made by hand
    member_count        integer not null default 0,
    created_at          timestamptz not null,
    updated_at          timestamptz not null,
    members_changed_at  timestamptz not null,
    -- The role in the organization that the confirmed members of the group get, beside their own. While a
    -- group of an organization has a role, `organizations.maps_groups` is true.
    role                text,
    role_id             uuid references organization_roles,
    mapped_by           uuid,  -- a member, who may have left since
    mapped_at           timestamptz,
    mapping_stopped_at  timestamptz,  -- when the member who gave the role lost the right to give it
    constraint groups_name_key unique (org_id, name_key),
    constraint groups_role_check check ((role_id is not null or is_role(role)) and role <> 'owner')
);
create index groups_of_role on groups (role_id) where role_id is not null;
create index groups_with_role on groups (org_id) where role is not null;
create trigger role_id before insert or update of role on groups
    for each row when (new.role_id is not null or not is_role(new.role)) execute function set_role_id();

-- No foreign keys to the organization and to the group: a group can have very many members. The members of a
-- deleted organization are removed in batches, and deleting a group removes its members.
create table group_members (
    org_id    uuid not null,
    group_id  uuid not null,
    user_id   uuid not null references users on delete cascade,
    added_at  timestamptz not null,
    primary key (group_id, user_id)
);
create index group_members_of_organization on group_members (org_id, user_id);
create index group_members_of_user on group_members (user_id);

-- The count follows every change, also a deletion by a foreign key. Its cost does not grow with the group.
create function count_group_members() returns trigger language plpgsql as $$
begin
    with changed as materialized (
        select group_id, count(*) * (case when tg_op = 'INSERT' then 1 else -1 end) as members from changed_rows group by group_id),
    held as materialized (
        select id from groups where id in (select group_id from changed) order by id for no key update)
    update groups g set member_count = member_count + c.members::integer from changed c, (select count(*) from held) before
    where g.id = c.group_id;
    return null;
end $$;
create trigger group_members_added after insert on group_members
    referencing new table as changed_rows for each statement execute function count_group_members();
create trigger group_members_removed after delete on group_members
    referencing old table as changed_rows for each statement execute function count_group_members();

-- The rights from organization roles and group roles. Most statements need them only in some organizations.
-- A statement starts each of its subqueries, even a subquery that it never runs. A function starts only when
-- it is called.

-- The groups that give a role to a confirmed member. Platform owners get no role by a group: a directory has
-- no power over platform owners (security C-6).
create function groups_with_roles(of_org uuid, of_user uuid) returns setof groups language sql stable as $$
    select g.* from group_members i join groups g on g.id = i.group_id and g.org_id = i.org_id
    where i.org_id = of_org and i.user_id = of_user and g.role is not null and g.mapping_stopped_at is null
      and not (select u.is_platform_owner from users u where u.id = of_user)
$$;

-- The capabilities of an organization role, and with `by_groups` also of the member's group roles. For a
-- built-in group role, the result has the role's name.
create function further_rights(of_org uuid, of_user uuid, own_role uuid, by_groups boolean) returns text[] language plpgsql stable as $$
begin
    return array(
        select unnest(r.capabilities || array['organization.view']) from organization_roles r where r.id = own_role
        union all
        select unnest(coalesce((select r.capabilities from organization_roles r where r.id = g.role_id), array[g.role]))
        from groups_with_roles(of_org, of_user) g where by_groups);
end $$;

create function roles_by_groups(of_org uuid, of_user uuid) returns text[] language plpgsql stable as $$
begin
    return array(select distinct g.role from groups_with_roles(of_org, of_user) g order by g.role);
end $$;

-- The names of a member's roles as one text, the member's own role first.
create function roles_key(of_org uuid, of_user uuid) returns text language plpgsql stable as $$
begin
    return (
        select case when o.maps_groups and m.confirmed_at is not null
                    then array_to_string(m.role || roles_by_groups(m.org_id, m.user_id), ' ') else m.role end
        from memberships m join organizations o on o.id = m.org_id where m.org_id = of_org and m.user_id = of_user);
end $$;

-- The attributes of users that an organization declares, beside their profile.
create table organization_attributes (
    org_id      uuid not null references organizations on delete cascade,
    name        text not null,
    label       text not null,
    kind        text not null check (kind in ('text', 'number', 'boolean', 'date', 'list')),
    writers     text[] not null check (writers <@ array['user', 'admin', 'directory', 'application']),  -- directory: not used yet
    merge       text not null check (merge in ('first', 'union', 'least', 'greatest')),  -- of the values of several groups
    position    integer not null,
    created_at  timestamptz not null,
    primary key (org_id, name)
);

-- The values of a user, by the names of the attributes.
create table attribute_values (
    org_id      uuid not null references organizations on delete cascade,
    user_id     uuid not null references users on delete cascade,
    attributes  jsonb not null,
    changed_at  timestamptz not null,
    primary key (org_id, user_id)
);
create index attribute_values_of_user on attribute_values (user_id);

-- The values of a group. A user without an own value has the values of their groups.
create table group_attribute_values (
    group_id    uuid primary key references groups on delete cascade,
    org_id      uuid not null references organizations on delete cascade,
    attributes  jsonb not null,
    changed_at  timestamptz not null
);
create index group_attribute_values_of_organization on group_attribute_values (org_id);

-- The values of a user end with the last relation to the organization: as a member, an end user, or a user of
-- its directory.
create function forget_attributes() returns trigger language plpgsql as $$
begin
    delete from attribute_values a
    where a.org_id = old.org_id and a.user_id = old.user_id
      and not exists (select from memberships m where m.org_id = a.org_id and m.user_id = a.user_id)
      and not exists (select from end_users e where e.org_id = a.org_id and e.user_id = a.user_id)
      and not exists (select from scim_users s where s.org_id = a.org_id and s.user_id = a.user_id);
    return null;
end $$;
create trigger forget_attributes_of_member after delete on memberships
    for each row execute function forget_attributes();

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
    org_id       uuid not null references organizations on delete cascade,
    domain       text not null,
    challenge    text not null,  -- the content of the TXT record that proves the domain
    verified_at  timestamptz,
    created_at   timestamptz not null,
    primary key (org_id, domain)
);
create unique index domains_one_organization on domains (domain) where verified_at is not null;
