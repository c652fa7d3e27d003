-- The number of webhook attempts and SCIM requests, for charts. The statements that record them count them here.
create table traffic_figures (
    org_id        uuid not null,
    kind          text not null check (kind in ('webhook', 'scim')),
    span          text not null check (span in ('hour', 'day')),
    start         timestamptz not null,
    outcome       text not null,
    total         bigint not null,
    milliseconds  bigint not null,  -- of all together
    slowest       integer not null,  -- in milliseconds
    primary key (org_id, kind, span, start, outcome)
);
create index traffic_figures_by_start on traffic_figures (span, start);
