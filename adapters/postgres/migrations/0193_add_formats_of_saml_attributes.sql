-- How an attribute is written, by its name: the format of the name, and the text that joins several values.
alter table saml_configurations add column attribute_formats jsonb;
