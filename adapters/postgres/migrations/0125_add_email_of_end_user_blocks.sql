-- The address at the time of the block. The organization sees no later address of a blocked user who has left its applications.
alter table end_user_blocks add column email text;
update end_user_blocks b set email = u.email from users u where u.id = b.user_id;
alter table end_user_blocks alter column email set not null;
