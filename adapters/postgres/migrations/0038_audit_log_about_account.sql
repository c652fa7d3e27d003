-- The entries about a user's own activity, with or without an actor: links in emails work without a sign-in.
create index audit_log_about_account on audit_log (target_id)
    where target_type = 'user' and (starts_with(action, 'security.') or action = 'user.email_changed');
drop index audit_log_of_account;
