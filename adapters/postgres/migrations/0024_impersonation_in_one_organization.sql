-- An impersonation that names an organization acts in this organization alone (null: in all of the user's organizations). No foreign key:
-- deleting the organization must not lift the limit.
alter table sessions add column impersonated_in uuid;

-- The organizations that an impersonation without this limit has acted in. Their audit logs have an entry about it.
create table impersonated_organizations (
    session_id  uuid not null references sessions on delete cascade,
    org_id      uuid not null references organizations on delete cascade,
    primary key (session_id, org_id)
);
create index impersonated_organizations_by_organization on impersonated_organizations (org_id);
