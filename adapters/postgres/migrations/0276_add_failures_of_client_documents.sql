-- Since when the metadata document of an external client is not available. Version 0.9.0 has no external clients.
alter table services add column document_failing_since timestamptz;
