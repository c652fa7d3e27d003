-- What the last refresh of each active connection found. It is apart from `connections`, so that a refresh writes no settings.
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
    announced_days   smallint,  -- before that end
    foreign key (org_id, connection_id) references connections (org_id, id) on delete cascade
);
create index connection_health_of_organization on connection_health (org_id, connection_id);
create index connection_health_by_due_at on connection_health (due_at);
