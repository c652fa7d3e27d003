-- The roles that organizations define themselves. Their names stand in `memberships.role` and the like, beside the built-in names.
create table organization_roles (
    id            uuid primary key,
    org_id        uuid not null references organizations on delete cascade,
    slug          text not null check (slug ~ '^[a-z][a-z0-9_-]{0,49}$' and not is_role(slug)),
    name          text not null,
    description   text not null,
    capabilities  text[] not null check (not capabilities @> array['organization.own']),
    version       integer not null default 1,  -- of the role; the number of its changes and one
    created_at    timestamptz not null,
    updated_at    timestamptz not null,
    constraint organization_roles_key unique (org_id, slug)
);

-- Whether groups of the organization can give rights, beside the other facts that each request reads.
alter table organizations add column maps_groups boolean not null default false;

-- The role of an organization that a row names. Version 0.9.0 writes the name alone. The lock makes the deletion of the
-- role wait, and finds it deleted.
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
