-- Single-page applications are public clients, as mobile and desktop applications are.
alter table services drop constraint services_service_type_check;
alter table services add constraint services_service_type_check check (service_type in ('web', 'spa', 'mobile', 'desktop', 'api'));
