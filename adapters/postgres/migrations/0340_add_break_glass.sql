-- The members who may open the organization without the connection that its sign-in policy requires. At most three; they lose this with
-- the membership.
create table break_glass_users (
    org_id   uuid not null references organizations on delete cascade,
    user_id  uuid not null,
    primary key (org_id, user_id),
    foreign key (org_id, user_id) references memberships (org_id, user_id) on delete cascade
);
-- The sessions in which they have done so, each reported once. Sessions of applications stand for the browser's.
create table break_glass_uses (
    session_id  uuid not null references sessions on delete cascade,
    org_id      uuid not null references organizations on delete cascade,
    used_at     timestamptz not null,
    primary key (session_id, org_id)
);
create index break_glass_uses_of_organization on break_glass_uses (org_id);
