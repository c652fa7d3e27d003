-- An entry no longer ends with the membership by itself: each end is recorded in the audit log.
alter table break_glass_users drop constraint break_glass_users_org_id_user_id_fkey;
alter table break_glass_users add foreign key (user_id) references users on delete cascade;
