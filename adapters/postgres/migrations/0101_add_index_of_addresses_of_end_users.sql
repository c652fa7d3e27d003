-- concurrently
-- A search of the audit log finds the users of applications by the beginning of their address.
create index concurrently if not exists end_users_by_address on end_users (org_id, email text_pattern_ops);
