-- The sign-out of a browser that goes on at the identity provider, after the sign-out here.
alter table connection_logins
    add column sign_out_hash  bytea,  -- SHA-256 of the secret that the browser has, and brings back from the provider
    add column sign_out_next  text;   -- our path at which the browser continues
