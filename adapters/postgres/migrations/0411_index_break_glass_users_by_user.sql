-- concurrently
create index concurrently if not exists break_glass_users_of_user on break_glass_users (user_id);
