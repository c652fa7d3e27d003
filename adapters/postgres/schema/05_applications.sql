-- Services (applications), their plans, API keys, users, roles, claims, and figures for charts.

create table services (
    id                                     uuid primary key,
    org_id                                 uuid not null references organizations on delete cascade,
    slug                                   text not null,
    name                                   text not null,
    service_type                           text not null
        check (service_type in ('web', 'spa', 'mobile', 'desktop', 'api')),
    client_id                              uuid not null constraint services_client_id_key unique,
    client_secret_hash                     bytea,  -- SHA-256; public clients have none
    redirect_uris                          text[] not null,
    device_activation_uri                  text,
    -- these two are kept by the statements that add or remove
    user_count                             bigint not null default 0,
    subscription_count                     bigint not null default 0,
    created_at                             timestamptz not null,
    updated_at                             timestamptz not null,
    -- a confidential application may redeem a code with PKCE instead of its secret
    pkce_without_secret                    boolean not null default false,
    -- who may use the service
    access_policy                          text not null default 'anyone'
        constraint services_access_policy check (access_policy in ('anyone', 'members', 'members_and_assigned', 'assigned')),
    -- under the policy `anyone`, SAML also admits users who enrolled themselves
    saml_self_enrolled                     boolean not null default false,
    launch_url                             text,  -- where "My applications" opens the service
    scim_external_id                       text,  -- the id that a directory gave to the service's group
    email_sign_in                          boolean,  -- null: as on the platform
    -- confirmed members are not asked for their consent
    is_trusted                             boolean not null default false,
    -- the claims of granted scopes are in the ID token, too
    id_token_claims                        boolean not null default true,
    post_logout_redirect_uris              text[] not null default '{}',
    backchannel_logout_uri                 text,
    former_secret_hash                     bytea,  -- SHA-256; accepted until the time below
    former_secret_expires_at               timestamptz,
    jwks                                   jsonb,  -- an array of public keys (RFC 7517)
    jwks_uri                               text,
    accepts_token_endpoint_audience        boolean not null default false,
    -- null: as on the platform; the same for refresh tokens
    access_token_seconds                   integer,
    refresh_token_seconds                  integer,
    enterprise                             boolean not null default false,
    required_acr                           text check (required_acr in ('mfa', 'phr')),
    require_pushed_authorization_requests  boolean not null default false,
    dpop_bound_access_tokens               boolean not null default false,
    always_ask_consent                     boolean not null default false,
    -- id of the present credentials, which tokens of the application name; new keys, or a rotation
    -- without overlap, give a new id
    credential_id                          uuid not null default gen_random_uuid(),
    initiate_login_uri                     text,  -- where the application starts a sign-in again, after a sign-in that took too long
    logo_url                               text,
    -- links on the consent page, such as those that the application registered
    logo_uri                               text,
    policy_uri                             text,
    tos_uri                                text,
    authorization_version                  integer not null default 0,  -- the number of changes of its permissions and roles
    claims_version                         bigint,  -- of its row in service_claims; null: there is none
    -- The address of the client ID metadata document of an external client, which no organization registered.
    -- Null for applications. The next columns but `registered_with` are of external clients only.
    client_uri                             text,
    document_fetched_at                    timestamptz,  -- when the row's metadata were fetched
    -- the name of the token with which the application registered itself; null: a member or a service account
    -- created it
    registered_with                        text,
    uses_device_flow                       boolean not null default false,  -- whether the metadata list the grant of the device flow
    client_authentication                  text,  -- how it authenticates, as consents have it
    document_failing_since                 timestamptz,  -- since when the metadata document is not available
    document_failed_at                     timestamptz,  -- when a fetch failed last; null: one failure is known
    constraint services_org_slug_key unique (org_id, slug),
    -- external clients have no secret, whatever their type
    check ((client_secret_hash is not null) = (client_uri is null and service_type in ('web', 'api'))),
    constraint services_former_secret_check
        check ((former_secret_hash is null) = (former_secret_expires_at is null)),
    constraint services_keys_check check (jwks is null or jwks_uri is null)
);
create index services_by_age on services (org_id, created_at, id);
create index services_registered on services (org_id, created_at, id) where client_uri is null;
create index services_external on services (document_fetched_at) where client_uri is not null;

-- A removed plan stays for the ended subscriptions that had it.
create table plans (
    id                uuid primary key,
    org_id            uuid not null,
    service_id        uuid not null references services on delete cascade,
    name              text not null,
    price_cents       integer not null check (price_cents >= 0),
    currency          text not null,
    features          text[] not null,
    billing_price_id  text,
    created_at        timestamptz not null,
    updated_at        timestamptz not null,
    removed_at        timestamptz
);
create index plans_of_service on plans (service_id, created_at, id) where removed_at is null;
create index plans_with_removed on plans (service_id);

create table api_keys (
    id            uuid primary key,
    org_id        uuid not null,
    service_id    uuid not null references services on delete cascade,
    name          text not null,
    prefix        text not null,
    key_hash      bytea not null constraint api_keys_hash_key unique,  -- SHA-256 of the whole key
    permissions   text[] not null check (cardinality(permissions) > 0),
    last_used_at  timestamptz,  -- to the minute
    expires_at    timestamptz,
    created_by    uuid not null,  -- no foreign key: the account may be gone
    created_at    timestamptz not null,
    announced     smallint  -- the days before the end that were announced last
);
create index api_keys_by_age on api_keys (service_id, created_at, id);
create index api_keys_by_expiry on api_keys (expires_at) where expires_at is not null;

-- The users of a service: they signed in to it, or an API key created them. Rows are only written while
-- the service is locked, so that a service that is being deleted gets no users.
--
-- No foreign key to the service: the housekeeper deletes the rows (docs/adr/0006). The foreign key to
-- the account has no cascade, because the rows are counted. It keeps the address and `deactivated` equal
-- to the account's: a search reads all users of a service, from the index alone.
create table service_users (
    service_id      uuid not null,
    user_id         uuid not null,
    org_id          uuid not null,
    email           text not null,
    deactivated     boolean not null,
    created_at      timestamptz not null,
    first_login_at  timestamptz,
    last_login_at   timestamptz,
    -- came only by SAML as a member, so that access ends with the membership
    by_membership   boolean not null default false,
    -- how the user came to the service
    enrolled_by     text not null default 'self' constraint service_users_enrolled_by
        check (enrolled_by in ('self', 'subscription', 'directory', 'admin', 'api_key')),
    primary key (service_id, user_id),
    constraint service_users_user_fkey foreign key (user_id, email, deactivated) references users (id, email, deactivated)
        on update cascade
);
create index service_users_by_age on service_users (service_id, created_at, user_id) include (email, deactivated);
create index service_users_deactivated on service_users (service_id) where deactivated;
create index service_users_of_organization on service_users (org_id, user_id);
create index service_users_of_user on service_users (user_id);
create index service_users_assigned on service_users (service_id, created_at, user_id)
    where enrolled_by in ('directory', 'admin', 'api_key');

-- The end users of an organization: one row per user of any of its services. A sign-in changes nothing here.
create table end_users (
    org_id       uuid not null,
    user_id      uuid not null,
    email        text not null,
    deactivated  boolean not null,
    created_at   timestamptz not null,
    primary key (org_id, user_id),
    constraint end_users_user_fkey foreign key (user_id, email, deactivated) references users (id, email, deactivated)
        on update cascade
);
create index end_users_by_age on end_users (org_id, created_at, user_id) include (email, deactivated);
create index end_users_deactivated on end_users (org_id) where deactivated;
create index end_users_of_user on end_users (user_id);
-- Searches in the audit log find users of applications by the start of their address.
create index end_users_by_address on end_users (org_id, email text_pattern_ops);
create trigger forget_attributes_of_end_user after delete on end_users
    for each row execute function forget_attributes();

create table end_user_totals (
    org_id  uuid primary key,
    total   bigint not null
);

-- The users that admins of an organization have blocked at its applications.
create table end_user_blocks (
    org_id   uuid not null references organizations on delete cascade,
    user_id  uuid not null references users on delete cascade,
    since    timestamptz not null,
    -- the address at the time of the block: the organization sees no later address of a user who has left its
    -- applications
    email    text not null,
    primary key (org_id, user_id)
);
create index end_user_blocks_of_user on end_user_blocks (user_id);

-- The groups that may use a service with the policy `assigned`, beside its assigned users.
create table service_groups_assigned (
    org_id       uuid not null references organizations on delete cascade,
    service_id   uuid not null references services on delete cascade,
    group_id     uuid not null references groups on delete cascade,
    assigned_at  timestamptz not null,
    primary key (service_id, group_id)
);
create index service_groups_assigned_of_group on service_groups_assigned (group_id);
create index service_groups_assigned_of_organization on service_groups_assigned (org_id);

-- Whether a group of the organization opens a service to this user. Statements ask this last, if nothing else
-- opens the service. A directory can put members into groups before they confirm the membership. Until then,
-- a group gives nothing, so that no page of a foreign organization makes a stranger its user.
create function group_opens_service(of_service uuid, of_user uuid) returns boolean language plpgsql stable as $$
begin
    return exists (
        select from service_groups_assigned g join group_members i on i.group_id = g.group_id
        where g.service_id = of_service and i.user_id = of_user
          and (exists (select from memberships m where m.org_id = g.org_id and m.user_id = i.user_id and m.confirmed_at is not null)
               or exists (select from end_users e where e.org_id = g.org_id and e.user_id = i.user_id)));
end $$;

-- The permissions that a service declares. Its roles combine them.
create table service_permissions (
    org_id       uuid not null,
    service_id   uuid not null references services on delete cascade,
    name         text not null,
    description  text,
    primary key (service_id, name)
);

create table service_roles (
    id           uuid primary key,
    org_id       uuid not null,
    service_id   uuid not null references services on delete cascade,
    slug         text not null,
    name         text not null,
    description  text,
    permissions  text[] not null,  -- names of service_permissions; one statement changes both tables
    created_at   timestamptz not null,
    updated_at   timestamptz not null,
    constraint service_roles_slug_key unique (service_id, slug)
);

create table service_role_users (
    org_id       uuid not null,
    service_id   uuid not null,
    role_id      uuid not null references service_roles on delete cascade,
    user_id      uuid not null references users on delete cascade,
    assigned_at  timestamptz not null,
    primary key (role_id, user_id)
);
create index service_role_users_of_user on service_role_users (user_id, org_id);
create index service_role_users_by_age on service_role_users (role_id, assigned_at, user_id);

-- The groups whose users have a role of a service.
create table service_role_groups (
    org_id       uuid not null references organizations on delete cascade,
    service_id   uuid not null,
    role_id      uuid not null references service_roles on delete cascade,
    group_id     uuid not null references groups on delete cascade,
    assigned_at  timestamptz not null,
    primary key (role_id, group_id)
);
create index service_role_groups_of_group on service_role_groups (group_id, service_id);
create index service_role_groups_of_organization on service_role_groups (org_id, service_id);

-- The roles that a user has at a service. A role that a group gives has the group's id. As for
-- `group_opens_service`, a group gives no role before the membership is confirmed.
create function service_roles_of(of_org uuid, of_user uuid, of_service uuid)
returns table (role_id uuid, group_id uuid, assigned_at timestamptz) language sql stable as $$
    select h.role_id, null::uuid, h.assigned_at from service_role_users h
    where h.user_id = of_user and h.org_id = of_org and h.service_id = of_service
    union all
    select j.role_id, j.group_id, j.assigned_at
    from group_members i join service_role_groups j on j.group_id = i.group_id and j.org_id = i.org_id
    where i.org_id = of_org and i.user_id = of_user and j.service_id = of_service
      and (exists (select from memberships m where m.org_id = i.org_id and m.user_id = i.user_id and m.confirmed_at is not null)
           or exists (select from end_users e where e.org_id = i.org_id and e.user_id = i.user_id))
$$;

-- Which claims the tokens of a service have, and their sources. Without a row it gets the standard claims.
create table service_claims (
    service_id  uuid primary key references services on delete cascade,
    org_id      uuid not null,
    document    jsonb not null,  -- core/authentication/model/claim_document.py
    sources     text[] not null,  -- where the values come from: attribute, directory
    changed_at  timestamptz not null
);
create sequence service_claim_versions;

-- The further facts about a user for the tokens of a service, as JSON. Most services need no further facts, but
-- without the function, a statement would start all these subqueries. With `everything`, the result also has
-- facts that the service does not use.
create function application_facts(of_service uuid, of_user uuid, with_groups boolean, everything boolean) returns jsonb
language plpgsql stable as $$
begin
    return (
        select jsonb_build_object(
            'document', c.document,
            -- The user's own values, the values of the user's groups, and the merge rules
            'attributes', case when everything or 'attribute' = any(c.sources) then (
                select jsonb_build_array(
                    (select a.attributes from attribute_values a where a.org_id = v.org_id and a.user_id = u.id), y.of_groups,
                    case when y.of_groups is not null then (
                        select jsonb_object_agg(a.name, a.merge) from organization_attributes a where a.org_id = v.org_id) end)
                from (select jsonb_agg(y.attributes order by g.name_key, g.id) as of_groups
                      from group_members i join groups g on g.id = i.group_id and g.org_id = i.org_id
                      join group_attribute_values y on y.group_id = g.id
                      where i.org_id = v.org_id and i.user_id = u.id) y) end,
            -- The values that the directory of the organization sent
            'directory', case when everything or 'directory' = any(c.sources) then (
                select x.attributes || jsonb_strip_nulls(jsonb_build_object(
                    'externalId', x.external_id, 'displayName', x.display_name, 'formatted', x.formatted, 'givenName', x.given_name,
                    'familyName', x.family_name,
                    'userName', coalesce(x.user_name, case when u.email_verified_at is not null then u.email end)))
                from scim_users x where x.org_id = v.org_id and x.user_id = u.id) end,
            -- The organization's roles that groups give, without the user's own role
            'further_roles', case when o.maps_groups and m.confirmed_at is not null then
                nullif(array_remove(roles_by_groups(m.org_id, m.user_id), m.role), '{}') end,
            'app_roles', case when everything or v.authorization_version > 0 then array(
                select distinct r.slug from service_roles_of(v.org_id, u.id, v.id) s
                join service_roles r on r.id = s.role_id and r.service_id = v.id order by r.slug) end,
            'permissions', case when everything or v.authorization_version > 0 then array(
                select distinct p.name from service_roles_of(v.org_id, u.id, v.id) s
                join service_roles r on r.id = s.role_id and r.service_id = v.id, unnest(r.permissions) p (name) order by p.name) end,
            -- The user's groups in the organization, with whether a group is assigned to the application
            'groups', case when everything or with_groups then (
                select jsonb_agg(jsonb_build_array(
                    g.id, g.name, g.external_id,
                    exists (select from service_groups_assigned a where a.service_id = v.id and a.group_id = g.id))
                    order by g.name_key, g.id)
                from group_members i join groups g on g.id = i.group_id and g.org_id = i.org_id
                where i.org_id = v.org_id and i.user_id = u.id) end)
        from services v join organizations o on o.id = v.org_id join users u on u.id = of_user
        left join memberships m on m.org_id = v.org_id and m.user_id = u.id left join service_claims c on c.service_id = v.id
        where v.id = of_service);
end $$;

-- The number of sign-ins to a service by day (UTC): the sum over the shards. The shard is random, so that
-- concurrent sign-ins rarely wait for each other. The housekeeper merges past days into shard 0.
create table login_totals (
    org_id      uuid not null,
    service_id  uuid not null,
    day         date not null,
    provider    text not null,
    shard       smallint not null,
    total       bigint not null,
    primary key (org_id, service_id, day, provider, shard)
);
create index login_totals_spread on login_totals (day) where shard > 0;

-- The number of sign-ins of members to the platform, per organization and day (UTC). There are no shards,
-- because members of an organization share the row of its audit total anyway.
create table member_login_totals (
    org_id    uuid not null,
    day       date not null,
    provider  text not null,
    total     bigint not null,
    primary key (org_id, day, provider)
);

-- The number of sign-ins and failed attempts for charts. `gatehouse serve` counts each hour again until
-- the hour is final. An id of zeros stands for the platform: as `org_id` for all organizations, as `service_id` for
-- Gatehouse itself. No foreign keys: the housekeeper deletes the rows of deleted organizations
-- (docs/adr/0006).
create table sign_in_figures (
    org_id      uuid not null,
    span        text not null check (span in ('hour', 'day')),
    start       timestamptz not null,  -- of the hour or the day (UTC)
    service_id  uuid not null,
    method      text not null,
    -- 'success', or the reason of a failure. Organizations have no successes by day: `login_totals` and
    -- `member_login_totals` have them.
    result      text not null,
    total       bigint not null,
    primary key (org_id, span, start, service_id, method, result)
);
create index sign_in_figures_by_start on sign_in_figures (span, start);

-- One row: all hours before this time are final.
create table figure_progress (
    is_only        boolean primary key default true check (is_only),
    counted_until  timestamptz not null
);

-- The number of users who signed in, for charts. Like sign_in_figures.
create table user_figures (
    org_id         uuid not null,
    span           text not null check (span in ('hour', 'day')),
    start          timestamptz not null,
    active         bigint not null,
    -- active users whose first sign-in of the day, or of the week, was in this hour or day
    first_of_day   bigint not null,
    first_of_week  bigint not null,
    new_users      bigint not null,  -- whose first sign-in ever was on this day
    primary key (org_id, span, start)
);
create index user_figures_by_start on user_figures (span, start);

-- How many confirmed members an organization has, or users the platform, and how many have a second factor.
create table population_figures (
    org_id         uuid not null,
    day            date not null,
    counted_at     timestamptz not null,
    users          bigint not null,
    second_factor  bigint not null,
    organizations  bigint,  -- null in rows of organizations
    passkeys       bigint not null,  -- users with a passkey or security key
    password_alone bigint not null,  -- users whose password alone signs in
    primary key (org_id, day)
);
create index population_figures_by_day on population_figures (day);
