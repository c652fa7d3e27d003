-- Authorization requests that clients pushed (RFC 9126), by the hash of their request_uri.
create table pushed_requests (
    request_hash  bytea primary key,
    org_id        uuid references organizations on delete cascade,  -- null for the platform's own frontend
    service_id    uuid references services on delete cascade,
    parameters    text not null,         -- as a query string
    created_at    timestamptz not null,
    expires_at    timestamptz not null,  -- moves forward once, when a browser presents the request
    browser_hash  bytea,                 -- of the browser that presented it first
    used_at       timestamptz            -- when a code or an error went to the client
);
create index pushed_requests_by_expiry on pushed_requests (expires_at);
create index pushed_requests_by_service on pushed_requests (service_id);
create index pushed_requests_by_organization on pushed_requests (org_id);

-- The thumbprint of the key that may redeem the code (RFC 9449 section 10), and of the key that a refresh token of a public client is
-- bound to (section 5). Null for no key.
alter table authorization_codes add column key_thumbprint text;
alter table sessions add column key_thumbprint text;

alter table services
    add column require_pushed_authorization_requests boolean not null default false,
    add column dpop_bound_access_tokens boolean not null default false;
