-- concurrently
create index concurrently if not exists connection_logins_by_sign_out on connection_logins (sign_out_hash) where sign_out_hash is not null;
