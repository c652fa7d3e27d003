-- One-time keys of forms that were sent. A form that makes something, or shows a secret, works once.
create table sent_forms (
    form_hash   bytea primary key,  -- SHA-256 of the session, the path and the key of the form
    expires_at  timestamptz not null
);
create index sent_forms_by_expiry on sent_forms (expires_at);
