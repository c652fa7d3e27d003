-- The link to a connection that waits for a sign-in of the account's own (core/federation/connections/model/links.py).
alter table sign_in_flows add column connection_link jsonb;
