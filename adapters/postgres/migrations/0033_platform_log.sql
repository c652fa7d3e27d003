-- The platform's log: the entries of the audit log without an organization. One index for each way of reading it, newest first. The
-- indexes of organizations' logs do not give this order for entries without an organization.
create index audit_log_of_platform on audit_log (created_at desc, id desc) where org_id is null;
create index audit_log_of_platform_by_action on audit_log (action, created_at desc, id desc) where org_id is null;
create index audit_log_of_platform_by_target on audit_log (target_type, target_id, created_at desc, id desc) where org_id is null;
create index audit_log_of_platform_by_actor on audit_log (actor_id, created_at desc, id desc) where org_id is null;
create index audit_log_of_platform_without_actor on audit_log (created_at desc, id desc) where org_id is null and actor_id is null;
create index audit_log_of_platform_by_impersonator on audit_log (impersonator_id, created_at desc, id desc)
    where org_id is null and impersonator_id is not null;
create index audit_log_of_platform_by_session on audit_log ((details ->> 'session_id'), created_at desc, id desc)
    where org_id is null and details ->> 'session_id' is not null;

-- The entries of the privacy log about a user
create index privacy_log_of_user on privacy_log (user_id, created_at desc, id desc);
