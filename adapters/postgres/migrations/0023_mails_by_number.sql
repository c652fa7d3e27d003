-- Which mail of those that the directory of its organization has caused this is: so many of each organization go out in a day, and by its
-- number the one so many before is found at once, instead of all between. What a process of the release before this one queues while it is
-- still there has no number, and counts against nothing.
alter table mails add column directory_number bigint;
update mails m set directory_number = n.number
from (select id, row_number() over (partition by org_id order by due_at, id) as number
      from mails where org_id is not null and kind in ('email_changed', 'welcome')) n
where n.id = m.id;
create unique index mails_of_directories_by_number on mails (org_id, directory_number) where directory_number is not null;
drop index mails_of_directories;
