-- Failed entries are few among many. Without these indexes, a search for them would read the whole log.
create index audit_log_failed on audit_log (org_id, created_at desc, id desc) where not success;
create index audit_log_failed_by_action on audit_log (org_id, action, created_at desc, id desc) where not success;
create index audit_log_failed_of_platform on audit_log (created_at desc, id desc) where org_id is null and not success;
