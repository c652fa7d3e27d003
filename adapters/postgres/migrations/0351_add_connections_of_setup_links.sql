-- The connection for which a set-up link renews a certificate.
alter table setup_links add column connection_id uuid;  -- no foreign key: the connection may be gone
