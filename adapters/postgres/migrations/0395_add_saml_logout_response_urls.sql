-- An application can take logout responses at another address than requests (`ResponseLocation` of its metadata).
alter table saml_configurations add column slo_response_url text;
