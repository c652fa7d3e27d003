-- The overview of an organization counts its certificates that expire soon.
create index saml_certificates_by_expiry on saml_certificates (org_id, valid_until) where deactivated_at is null;
