-- No foreign key: the log outlives the connection. Values of claims are never stored, only the names.
alter table login_events
    add column connection_id  uuid,
    add column fault          text,    -- why the answer of the identity provider was refused
    add column received       text[];  -- the names of the claims or attributes that came
