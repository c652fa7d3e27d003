-- concurrently
create index concurrently if not exists devices_live_of_user on devices (user_id) where revoked_at is null;
