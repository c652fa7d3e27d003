-- The permissions that an application declares, and the roles that it makes of them. Version 0.9.0 does not know them.
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
    permissions  text[] not null,  -- names of service_permissions: every change of both is one statement
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
-- The number of changes of both. It is the entity tag of the document.
alter table services add column authorization_version integer not null default 0;
