-- Version 0.9.0 added these constraints as NOT VALID. All rows fulfill them. The baseline creates them
-- validated.
alter table services validate constraint services_access_policy;
alter table service_users validate constraint service_users_enrolled_by;
alter table users
    validate constraint users_closed_by_platform_check,
    validate constraint users_closed_by_both_check,
    validate constraint users_closed_check;
