-- The certificate with which a service signs its LogoutRequests (PEM). A request without SessionIndex that it signs ends the user's sessions
-- in all browsers, so sessions are found by the name of the user at the service.
alter table saml_configurations add column slo_certificate text;
create index saml_sessions_by_name on saml_sessions (service_id, name_id);
