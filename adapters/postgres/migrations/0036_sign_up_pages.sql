-- The path where the browser continues after the link in an email. After a sign-up on our page also the SHA-256 of the device cookie of that
-- browser, and the service that the user signed up for.
alter table mails add column next_path text, add column browser_hash bytea, add column service_id uuid;
alter table one_time_tokens add column next_path text, add column browser_hash bytea, add column service_id uuid;
