-- Links with which the IT department of a customer prepares the integrations of an organization. They need no account.
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
    ended_by        text check (ended_by in ('admin', 'codes', 'finished')),
    created_by      uuid not null,  -- no foreign key: the account may be gone
    created_at      timestamptz not null,
    constraint setup_links_token_key unique (token_hash),
    constraint setup_links_browser_key unique (browser_hash),
    constraint setup_links_id_key unique (org_id, id),
    constraint setup_links_opened_check check ((browser_hash is null) = (opened_at is null)),
    constraint setup_links_ended_check check ((ended_by is null) = (ended_at is null)),
    constraint setup_links_code_check check (num_nulls(code_salt, code_hash, code_until) in (0, 3))
);
create index setup_links_of_organization on setup_links (org_id, created_at);
create index setup_links_ended on setup_links (least(ended_at, expires_at));

-- What a link proposes for each of its parts. Nothing else reads these rows, so that a proposal has no effect before an admin applies it.
create table setup_proposals (
    id           uuid primary key,
    org_id       uuid not null references organizations on delete cascade,
    link_id      uuid not null,
    part         text not null,
    document     bytea not null,  -- sealed JSON
    is_ready     boolean not null,
    token_hash   bytea,  -- of a proposed SCIM token, until an admin applies it
    tried_at     timestamptz,  -- the first request with this token
    tried_with   text,
    changed_at   timestamptz not null,
    applied_at   timestamptz,
    applied_by   uuid,
    constraint setup_proposals_part_key unique (link_id, part),
    constraint setup_proposals_token_key unique (token_hash),
    constraint setup_proposals_applied_check check (num_nulls(applied_at, applied_by) in (0, 2)),
    foreign key (org_id, link_id) references setup_links (org_id, id) on delete cascade
);
create index setup_proposals_of_link on setup_proposals (org_id, link_id);
