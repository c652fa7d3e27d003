-- The host of an external client that waits for a sign-in. It is in no table before the first consent. Version 0.9.0 writes none.
alter table sign_in_flows add column external_client text;
alter table login_events add column external_client text;
