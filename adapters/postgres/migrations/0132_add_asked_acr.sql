-- The authentication classes of which one had to be met, as the application asked (OpenID Connect Core section 5.5.1.1).
-- Null: none, also in rows of version 0.9.0.
alter table authorization_codes add column asked_acr text[];
alter table sessions add column asked_acr text[];
