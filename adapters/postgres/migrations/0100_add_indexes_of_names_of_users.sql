-- concurrently
-- A search of the audit log finds users by the beginning of their whole name, or of the last word of it.
create index concurrently if not exists users_by_name on users (lower(name) text_pattern_ops) where name is not null;
create index concurrently if not exists users_by_last_name on users (lower(substring(name from '[^ ]+$')) text_pattern_ops) where name is not null;
