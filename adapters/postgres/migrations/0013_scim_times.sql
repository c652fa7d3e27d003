-- What directories are told of people who left, and since when things are as they are shown.

-- Of whoever is known without being a member, the address that they had when they left: another one is nobody's business here. Rows that the
-- previous release writes have none, and are shown with the one of the account.
alter table scim_users add column email text;
update scim_users s set email = u.email from users u where u.id = s.user_id and s.membership_id is not null;
create index scim_users_by_email on scim_users (org_id, email) where email is not null;
-- The group is read in the order of ids, and whoever is in it without being a member is among very many who are.
create index scim_users_outside_by_id on scim_users (org_id, user_id) where membership_id is not null;

-- The times by which a directory sees that a user or the group has changed.
alter table users add column email_changed_at timestamptz;
update users u set email_changed_at = f.at
from (select user_id, max(until) as at from former_addresses group by user_id) f where f.user_id = u.id;
alter table organizations add column members_changed_at timestamptz;

-- Which mails the directories of organizations have caused, the newest of them first: so many of each organization go out in a day.
create index mails_of_directories on mails (org_id, due_at) where kind in ('email_changed', 'welcome');
