-- Sign-ons that ask for a fresh sign-in, of people for whom an identity provider vouches.

-- For whom one has vouched that was asked to have them show again who they are.
alter table saml_sign_ons add column vouched_for uuid references users on delete set null;
create index saml_sign_ons_vouched_for on saml_sign_ons (vouched_for) where vouched_for is not null;
