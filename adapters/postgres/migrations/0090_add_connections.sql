-- The identity providers that sign users in. The operator's settings have the rest of the platform's connections.
-- A test compares these rows with the code.
create table connections (
    id        uuid primary key,
    org_id    uuid references organizations on delete cascade,  -- null: of the platform
    slug      text not null constraint connections_slug_key unique,
    protocol  text not null
);
create index connections_of_organization on connections (org_id) where org_id is not null;
insert into connections (id, slug, protocol) values
    ('00000000-0000-0000-0000-000000000001', 'codehost', 'oauth'),
    ('00000000-0000-0000-0000-000000000002', 'websuite', 'oidc'),
    ('00000000-0000-0000-0000-000000000003', 'officesuite', 'oidc');
