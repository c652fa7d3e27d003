-- A request to sign out is looked at as it comes, so nothing of it is kept unless it has ended a session. A browser has one sign-out under
-- way, which may be about sessions of several people who came to it one after the other: so the person stands with each request, and so do
-- all the names by which the service may ask for the same.
delete from saml_logouts where not matched;
alter table saml_logout_requests
    add column user_id uuid,  -- whose session it was
    add column former_names text[] not null default '{}';
update saml_logout_requests r set user_id = l.user_id from saml_logouts l where l.id = r.logout_id;
create index saml_logout_requests_of_user on saml_logout_requests (user_id);
drop index saml_logouts_of_user;
alter table saml_logouts
    drop column name_id, drop column name_id_format, drop column session_index, drop column user_id, drop column begun_at,
    drop column matched;
