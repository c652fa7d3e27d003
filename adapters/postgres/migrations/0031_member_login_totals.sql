-- The number of sign-ins of members to the platform, per organization and day (UTC). Members of an organization share the row of its
-- audit total anyway, so these totals have no shards.
create table member_login_totals (
    org_id    uuid not null,
    day       date not null,
    provider  text not null,
    total     bigint not null,
    primary key (org_id, day, provider)
);
