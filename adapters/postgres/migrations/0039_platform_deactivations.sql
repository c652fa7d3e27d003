-- Platform owners can deactivate an account, as the directory of the organization that created it can. deactivated_at is the time since
-- which the account is closed. While platform_deactivated_at is set, directory_deactivated_at has the time at which a directory deactivated
-- the account, too. So each side reactivates only what it has deactivated. If a process of the previous release reactivates an account
-- that the platform deactivated, the first constraint refuses it. The columns are new, so no existing row needs to be checked.
alter table users
    add column platform_deactivated_at timestamptz,
    add column directory_deactivated_at timestamptz,
    add constraint users_closed_by_platform_check check (platform_deactivated_at is null or deactivated_at is not null) not valid,
    add constraint users_closed_by_both_check check (directory_deactivated_at is null or platform_deactivated_at is not null) not valid;
