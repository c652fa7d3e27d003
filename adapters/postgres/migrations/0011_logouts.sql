-- A sign-out under way outlives the services that it is about, and the person: whom it is still to reach is told of it, and a service that
-- was deleted before it said that it was done makes it one in part. The rows go when they expire, a quarter of an hour after they came.
alter table saml_logouts
    drop constraint saml_logouts_service_id_fkey,
    drop constraint saml_logouts_user_id_fkey;
alter table saml_logout_requests
    drop constraint saml_logout_requests_service_id_fkey;
drop index saml_logouts_of_service;
drop index saml_logout_requests_of_service;
