-- When a fetch of the metadata document of an external client failed last. Without it, one failure is known (0276).
alter table services add column document_failed_at timestamptz;
