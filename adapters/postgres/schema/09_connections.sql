-- Connections: the identity providers that sign users in, and their set-up by IT departments.

-- The connections of the platform have no organization. Each start fills them from the operator's settings. A test
-- compares these rows with the code.
create table connections (
    id                    uuid primary key,
    org_id                uuid references organizations on delete cascade,  -- null: of the platform
    slug                  text not null,
    protocol              text not null,
    name                  text,
    preset                text,
    state                 text not null default 'active' check (state in ('draft', 'active', 'inactive')),
    -- core/federation/connections/model/settings.py; of the platform core/kernel/connections.py, and null if it is not set up
    settings              jsonb,
    mapping               jsonb,  -- core/federation/connections/model/settings.py
    client_secret         bytea,  -- sealed
    client_secret_set_at  timestamptz,
    created_at            timestamptz,
    first_activated_at    timestamptz,
    -- the members and service accounts that changed it since its last activation
    changed_by            uuid[] not null default '{}',
    constraint connections_of_organizations_key unique nulls not distinct (org_id, slug),
    constraint connections_id_key unique (org_id, id),
    constraint connections_secret_check check (num_nulls(client_secret, client_secret_set_at) in (0, 2)),
    constraint connections_of_organizations_check check (
        org_id is null
        or num_nulls(name, settings, mapping, created_at) = 0 and protocol in ('oidc', 'saml')
           and slug not in ('codehost', 'websuite', 'officesuite')),
    -- no user signs in through the test provider
    constraint connections_test_check
        check (preset is distinct from 'test' or state = 'draft' and first_activated_at is null)
);
create index connections_of_organization on connections (org_id) where org_id is not null;
insert into connections (id, slug, protocol) values
    ('00000000-0000-0000-0000-000000000001', 'codehost', 'oauth'),
    ('00000000-0000-0000-0000-000000000002', 'websuite', 'oidc'),
    ('00000000-0000-0000-0000-000000000003', 'officesuite', 'oidc');

-- A domain leads to a provider of the platform, or to a connection of the organization.
create table home_realm_routes (
    org_id         uuid not null references organizations on delete cascade,
    domain         text not null,
    provider       text,
    connection_id  uuid,
    primary key (org_id, domain),
    constraint home_realm_routes_target_check check (num_nulls(provider, connection_id) = 1),
    constraint home_realm_routes_connection_fkey foreign key (org_id, connection_id)
        references connections (org_id, id) on delete cascade
);
create index home_realm_routes_of_connection on home_realm_routes (org_id, connection_id)
    where connection_id is not null;

-- What a service has set for a connection: its own OAuth client there, and the scopes that it requests.
create table service_connections (
    service_id     uuid not null references services on delete cascade,
    connection_id  uuid not null references connections on delete cascade,
    org_id         uuid not null,
    -- client_id, client_secret and updated_at are null together: the service uses the platform's client
    client_id      text,
    client_secret  bytea,  -- sealed
    updated_at     timestamptz,
    scopes         text[],  -- null: the platform's scopes
    primary key (service_id, connection_id),
    constraint service_connections_client_check check (num_nulls(client_id, client_secret, updated_at) in (0, 3))
);
create index service_connections_of_connection on service_connections (connection_id);

-- Our own keys at the identity providers of organizations, each with a certificate that we have signed with it.
create table connection_keys (
    id             uuid primary key,
    org_id         uuid not null references organizations on delete cascade,
    connection_id  uuid not null,
    state          text not null check (state in ('active', 'next', 'previous')),
    certificate    text not null,  -- PEM
    private_key    bytea not null,  -- sealed
    valid_from     timestamptz not null,
    valid_until    timestamptz not null,
    created_at     timestamptz not null,
    kept_until     timestamptz,
    constraint connection_keys_state_key unique (connection_id, state),
    foreign key (org_id, connection_id) references connections (org_id, id) on delete cascade
);
create index connection_keys_of_organization on connection_keys (org_id, connection_id);

-- The certificates with which an identity provider signs.
create table connection_certificates (
    org_id         uuid not null references organizations on delete cascade,
    connection_id  uuid not null,
    fingerprint    text not null,  -- SHA-256 in hexadecimal
    certificate    text not null,  -- PEM
    valid_from     timestamptz not null,
    valid_until    timestamptz not null,
    source         text not null check (source in ('metadata', 'admin')),
    is_active      boolean not null,
    added_at       timestamptz not null,
    primary key (connection_id, fingerprint),
    foreign key (org_id, connection_id) references connections (org_id, id) on delete cascade
);
create index connection_certificates_of_organization on connection_certificates (org_id, connection_id);

-- The results of the last refreshes of active connections. They are apart from `connections`, so that a
-- refresh writes no settings.
create table connection_health (
    org_id           uuid not null references organizations on delete cascade,
    connection_id    uuid primary key,
    health           text not null default 'unknown' check (health in ('unknown', 'ok', 'warning', 'failing')),
    problem          text,  -- core/federation/connections/model/health.py
    failures         integer not null default 0,  -- refreshes that failed one after the other
    refreshed_at     timestamptz,
    due_at           timestamptz not null,
    refetched_at     timestamptz,  -- the last refresh because of an unknown certificate
    certificate_end  timestamptz,
    announced_days   smallint,  -- before certificate_end
    foreign key (org_id, connection_id) references connections (org_id, id) on delete cascade
);
create index connection_health_of_organization on connection_health (org_id, connection_id);
create index connection_health_by_due_at on connection_health (due_at);

-- The accounts that connections of organizations know, by the subject. The issuer of a connection is fixed
-- since its first activation. These accounts are apart from `identities`: an identity is a way into its
-- account, and a connection opens its organization only.
create table connection_identities (
    org_id         uuid not null references organizations on delete cascade,
    connection_id  uuid not null,
    user_id        uuid not null references users on delete cascade,
    subject        text not null,
    email          text,  -- as the identity provider sent it last
    linked_at      timestamptz not null,
    last_used_at   timestamptz not null,
    primary key (connection_id, user_id),
    constraint connection_identities_subject_key unique (connection_id, subject),
    foreign key (org_id, connection_id) references connections (org_id, id) on delete cascade
);
create index connection_identities_of_user on connection_identities (user_id);
create index connection_identities_of_organization on connection_identities (org_id, connection_id);

-- The groups that a connection gives. A row without a value gives its group to all users who come through the
-- connection.
create table connection_groups (
    id             uuid primary key,
    org_id         uuid not null references organizations on delete cascade,
    connection_id  uuid not null,
    value          text,  -- a value of the claim with the groups
    group_id       uuid not null references groups on delete cascade,
    mapped_by      uuid not null,  -- no foreign key: the account may be gone
    mapped_at      timestamptz not null,
    constraint connection_groups_key unique nulls not distinct (connection_id, value, group_id),
    foreign key (org_id, connection_id) references connections (org_id, id) on delete cascade
);
create index connection_groups_of_organization on connection_groups (org_id, connection_id);
create index connection_groups_of_group on connection_groups (group_id);

-- The users that connections have put into groups, by the claims of identity providers. Only these users are
-- taken out again.
create table connection_group_members (
    org_id         uuid not null references organizations on delete cascade,
    connection_id  uuid not null,
    group_id       uuid not null references groups on delete cascade,
    user_id        uuid not null references users on delete cascade,
    was_member     boolean not null,  -- before the sign-in, so the user stays in the group
    primary key (connection_id, user_id, group_id),
    foreign key (org_id, connection_id) references connections (org_id, id) on delete cascade
);
create index connection_group_members_of_organization on connection_group_members (org_id, connection_id);
create index connection_group_members_of_group on connection_group_members (group_id);
create index connection_group_members_of_user on connection_group_members (user_id);

-- The sign-ins at the connections of organizations. The proofs of sessions name these sign-ins. A sign-out, here
-- or at the identity provider, needs them.
create table connection_logins (
    id                uuid primary key,
    org_id            uuid not null references organizations on delete cascade,
    connection_id     uuid not null,
    user_id           uuid not null references users on delete cascade,
    provider_session  text,  -- `sid` of an ID token, or the SessionIndex of an assertion
    logout            bytea not null,  -- sealed: the ID token, or the NameID
    created_at        timestamptz not null,
    ends_at           timestamptz not null,  -- no session names the sign-in afterwards
    -- `sign_out_*`: a browser's sign-out that goes on at the identity provider after the sign-out here
    sign_out_hash     bytea,  -- SHA-256 of the secret that the browser has, and brings back from the provider
    sign_out_next     text,  -- our path at which the browser continues
    foreign key (org_id, connection_id) references connections (org_id, id) on delete cascade
);
create index connection_logins_of_organization on connection_logins (org_id, connection_id, provider_session);
create index connection_logins_of_user on connection_logins (user_id);
create index connection_logins_by_end on connection_logins (ends_at);
create index connection_logins_by_sign_out on connection_logins (sign_out_hash) where sign_out_hash is not null;

-- The used messages of identity providers, which work once: SAML assertions and logout requests, and logout
-- tokens (security X-16; Back-Channel Logout section 2.6).
create table used_provider_messages (
    org_id         uuid not null references organizations on delete cascade,
    connection_id  uuid not null,
    message_hash   bytea not null,  -- SHA-256 of the message's id or jti
    expires_at     timestamptz not null,
    primary key (connection_id, message_hash),
    foreign key (org_id, connection_id) references connections (org_id, id) on delete cascade
);
create index used_provider_messages_of_organization on used_provider_messages (org_id, connection_id);
create index used_provider_messages_by_age on used_provider_messages (expires_at);

-- Links with which a customer's IT department prepares the integrations of an organization, without an account.
create table setup_links (
    id              uuid primary key,
    org_id          uuid not null references organizations on delete cascade,
    name            text not null,
    kind            text not null check (kind in ('embedded', 'mailed')),
    parts           text[] not null check (cardinality(parts) > 0),
    recipient       text check ((recipient is not null) = (kind = 'mailed')),
    token_hash      bytea not null,
    code_salt       bytea,
    code_hash       bytea,
    code_until      timestamptz,
    codes_sent      integer not null default 0,
    attempts        integer not null default 0,  -- at the code
    browser_hash    bytea,
    opened_at       timestamptz,
    opened_address  text,
    opened_agent    text,
    expires_at      timestamptz not null,
    ended_at        timestamptz,
    -- rights: the creator may no longer create links
    ended_by        text check (ended_by in ('admin', 'codes', 'finished', 'rights')),
    created_by      uuid not null,  -- no foreign key: the account may be gone
    created_at      timestamptz not null,
    connection_id   uuid,  -- whose certificate the link renews; no foreign key: the connection may be gone
    return_url      text,  -- the application's page to which the finished page leads back
    constraint setup_links_token_key unique (token_hash),
    constraint setup_links_browser_key unique (browser_hash),
    constraint setup_links_id_key unique (org_id, id),
    constraint setup_links_opened_check check ((browser_hash is null) = (opened_at is null)),
    constraint setup_links_ended_check check ((ended_by is null) = (ended_at is null)),
    constraint setup_links_code_check check (num_nulls(code_salt, code_hash, code_until) in (0, 3))
);
create index setup_links_of_organization on setup_links (org_id, created_at);
create index setup_links_ended on setup_links (least(ended_at, expires_at));

-- A link's proposals for its parts. Nothing else reads these rows, so that a proposal has no effect before an
-- admin applies it.
create table setup_proposals (
    id          uuid primary key,
    org_id      uuid not null references organizations on delete cascade,
    link_id     uuid not null,
    part        text not null,
    document    bytea not null,  -- sealed JSON
    is_ready    boolean not null,
    token_hash  bytea,  -- of a proposed SCIM token, until an admin applies it
    tried_at    timestamptz,  -- the first request with this token
    tried_with  text,
    changed_at  timestamptz not null,
    applied_at  timestamptz,
    applied_by  uuid,
    constraint setup_proposals_part_key unique (link_id, part),
    constraint setup_proposals_token_key unique (token_hash),
    constraint setup_proposals_applied_check check (num_nulls(applied_at, applied_by) in (0, 2)),
    foreign key (org_id, link_id) references setup_links (org_id, id) on delete cascade
);
create index setup_proposals_of_link on setup_proposals (org_id, link_id);

-- Pictures of users, and logos of organizations, applications and identity providers. A row has one owner: a
-- user, an application with its organization, a connection, or an organization alone.
create table images (
    owner_id       uuid generated always as (coalesce(user_id, service_id, connection_id, org_id)) stored primary key,
    user_id        uuid references users on delete cascade,
    org_id         uuid references organizations on delete cascade,
    service_id     uuid references services on delete cascade,
    connection_id  uuid references connections on delete cascade,
    key            text not null constraint images_key_key unique,  -- the part of the address that cannot be guessed
    small          bytea not null,  -- PNG, as `large`
    large          bytea not null,
    created_at     timestamptz not null,
    constraint images_owner_check
        check (num_nonnulls(user_id, connection_id, org_id) = 1 and (service_id is null or org_id is not null))
);
create index images_of_user on images (user_id) where user_id is not null;
create index images_of_organization on images (org_id) where org_id is not null;
create index images_of_service on images (service_id) where service_id is not null;
create index images_of_connection on images (connection_id) where connection_id is not null;
