-- The users that admins of an organization have blocked at its applications. Version 0.9.0 does not know them, and admits these users.
create table end_user_blocks (
    org_id   uuid not null references organizations on delete cascade,
    user_id  uuid not null references users on delete cascade,
    since    timestamptz not null,
    primary key (org_id, user_id)
);
create index end_user_blocks_of_user on end_user_blocks (user_id);
