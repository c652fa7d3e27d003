-- Beside the active certificate of a service, the next one has a key, and for some days the previous one. Processes of the previous release
-- take only rows without `deactivated_at`, so that both are inactive for them.
alter table saml_certificates
    add column standby text check (standby in ('next', 'previous')),
    add column kept_until timestamptz,  -- of the previous one
    drop constraint saml_certificates_check,
    add constraint saml_certificates_key_check check ((private_key is null) = (deactivated_at is not null and standby is null)),
    add constraint saml_certificates_standby_is_inactive check (standby is null or deactivated_at is not null),
    add constraint saml_certificates_kept_check check ((kept_until is null) = (standby is distinct from 'previous'));
create unique index saml_certificates_standby_key on saml_certificates (service_id, standby) where standby is not null;
create index saml_certificates_by_end on saml_certificates (kept_until) where kept_until is not null;
