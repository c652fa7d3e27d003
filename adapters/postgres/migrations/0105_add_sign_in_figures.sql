-- The number of sign-ins and failed attempts for charts. `gatehouse serve` counts them again for each hour until it is final.
-- An id of zeros stands for the platform: as `org_id` for all organizations, as `service_id` for Gatehouse itself.
-- No foreign keys: the housekeeper deletes the rows of deleted organizations (docs/adr/0006).
create table sign_in_figures (
    org_id      uuid not null,
    span        text not null check (span in ('hour', 'day')),
    start       timestamptz not null,  -- of the hour or the day (UTC)
    service_id  uuid not null,
    method      text not null,
    -- 'success', or the reason of a failure. Organizations have no successes by day: `login_totals` and
    -- `member_login_totals` have them.
    result      text not null,
    total       bigint not null,
    primary key (org_id, span, start, service_id, method, result)
);
create index sign_in_figures_by_start on sign_in_figures (span, start);

-- One row: all hours before this time are final.
create table figure_progress (
    is_only        boolean primary key default true check (is_only),
    counted_until  timestamptz not null
);
