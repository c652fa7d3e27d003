-- The service accounts of an owner who ended their part go on until this time, with these rights at most.
alter table service_accounts
    add column ends_at timestamptz,
    add column kept_rights text[];
