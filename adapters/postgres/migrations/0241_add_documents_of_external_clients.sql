-- When the metadata of an external client were fetched that its row has, and what the consents of users cover of the client:
-- the redirect URIs that were used, and how it authenticates. Version 0.9.0 has no external clients.
alter table services add column document_fetched_at timestamptz;
alter table consents
    add column redirect_uris text[] not null default '{}',
    add column client_authentication text;
