-- Whether the metadata of an external client list the grant of the device flow. Version 0.9.0 has no external clients.
alter table services add column uses_device_flow boolean not null default false;
