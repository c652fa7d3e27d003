-- Stands for the secret and the keys of an application in the tokens that it gets for itself. Other keys and a rotation without overlap
-- replace it.
alter table services add column credential_id uuid not null default gen_random_uuid();
