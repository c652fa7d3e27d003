-- Who came through an identity provider, and is to be linked when the second factor has been shown: an identity without a person, which goes
-- with the sign-in that waits. Tokens are sealed.
alter table pre_auths
    add column issuer               text,
    add column provider_user_id     text,
    add column identity_service_id  uuid,     -- the context that it is to be linked in, null for the account itself
    add column identity_email       text,
    add column known_elsewhere      boolean,  -- it has opened the account by being linked in another context, and not by its address
    add column access_token         bytea,
    add column refresh_token        bytea,
    add column token_expires_at     timestamptz,
    add column scopes               text[],
    add constraint pre_auths_identity_check check (num_nulls(issuer, provider_user_id, known_elsewhere, access_token) in (0, 4));
