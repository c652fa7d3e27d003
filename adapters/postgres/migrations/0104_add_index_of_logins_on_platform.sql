-- concurrently
create index concurrently if not exists login_events_on_platform on login_events (created_at desc, id desc) where org_id is null and seen_by = 'all';
