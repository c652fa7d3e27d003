-- Applications can require a phishing-resistant sign-in. Version 0.9.0 asks for any second factor there.
alter table services
    drop constraint services_required_acr_check,
    add constraint services_required_acr_check check (required_acr in ('mfa', 'phr')) not valid;
