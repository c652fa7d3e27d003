-- The number of users who signed in, for charts. Like sign_in_figures.
create table user_figures (
    org_id         uuid not null,
    span           text not null check (span in ('hour', 'day')),
    start          timestamptz not null,
    active         bigint not null,
    -- of the active users: those whose first sign-in of the day, and of the week, was in this hour or day
    first_of_day   bigint not null,
    first_of_week  bigint not null,
    new_users      bigint not null,  -- whose first sign-in ever was on this day
    primary key (org_id, span, start)
);
create index user_figures_by_start on user_figures (span, start);

-- The number of confirmed members of an organization, or of all users, and how many have a second factor.
create table population_figures (
    org_id         uuid not null,
    day            date not null,
    counted_at     timestamptz not null,
    users          bigint not null,
    second_factor  bigint not null,
    organizations  bigint,  -- only of the platform
    primary key (org_id, day)
);
create index population_figures_by_day on population_figures (day);
