-- The last SCIM requests of each organization, for its admins. No column holds a value of a user.
-- Unlogged, so that a write waits for no disk: a crash of the database empties the table, and a clean stop keeps it.
create unlogged table scim_requests (
    org_id uuid not null, -- no foreign key: its check would lock the row of the organization
    id bigint generated always as identity,
    at timestamptz not null,
    token_id uuid not null,
    method text not null,
    path text not null,
    attributes text[] not null,
    status integer not null,
    scim_type text,
    error text,
    primary key (org_id, id)
);
