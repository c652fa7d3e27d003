-- How the users of an organization, of one of its applications, or of the platform sign in. Version 0.9.0 does not know these rules.
create sequence sign_in_policy_versions;
create table sign_in_policies (
    id          uuid primary key,
    org_id      uuid references organizations on delete cascade,  -- null: of the platform
    service_id  uuid references services on delete cascade,       -- null: of the whole organization
    rules       jsonb not null,                                   -- core/kernel/sign_in_policy/rules.py
    version     bigint not null default nextval('sign_in_policy_versions'),
    changed_at  timestamptz not null,
    changed_by  uuid,                                             -- no foreign key (docs/adr/0005)
    reminded    smallint not null default 0,                      -- of the platform's: the emails that were sent about it
    constraint sign_in_policies_key unique nulls not distinct (org_id, service_id)
);
create index sign_in_policies_of_service on sign_in_policies (service_id) where service_id is not null;
