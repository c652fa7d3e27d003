-- Sign-ins in progress. A row is written when a page must be shown, or when an API client still needs a factor.
create table sign_in_flows (
    id                    uuid primary key,  -- in addresses of pages; also the `jti` and the `sid` of a pre-auth token
    browser_hash          bytea,  -- SHA-256 of the browser's device cookie; null: an API client
    target                text not null,
    request               text not null,  -- of the target, which alone reads it
    secret_hash           bytea unique,  -- SHA-256 of a secret by which others name it
    -- No foreign keys: sign-ins of strangers would lock the row of one service (docs/adr/0005).
    org_id                uuid,
    service_id            uuid,
    wants_fresh           boolean not null,
    keeps_trust           boolean not null,
    first_session_id      uuid,  -- of the browser when it began
    user_id               uuid references users on delete cascade,  -- of the proofs
    proofs                jsonb not null,
    proofs_expire_at      timestamptz,
    identity              bytea,  -- sealed; to link when all factors are proved
    failures              integer not null default 0,  -- at the present challenge, or at the second factor
    session_id            uuid references sessions on delete cascade,  -- that it is for, or that an API client started for it
    ticket_hash           bytea,  -- SHA-256; of that API client
    -- The newest email or trip to an identity provider
    challenge_id          uuid unique,  -- of the email
    challenge             jsonb,
    challenge_hash        bytea unique,  -- SHA-256 of the link, or of the provider's state
    challenge_code        bytea,  -- sealed
    challenge_email       text,
    challenge_user_id     uuid references users on delete cascade,
    challenge_begun_at    timestamptz,
    challenge_expires_at  timestamptz,
    begun_at              timestamptz not null,
    expires_at            timestamptz not null,
    closed_at             timestamptz  -- finished, or pushed out by newer ones of the browser
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02);
create index sign_in_flows_of_browser on sign_in_flows (browser_hash, begun_at desc) where closed_at is null and browser_hash is not null;
create index sign_in_flows_of_user on sign_in_flows (user_id) where user_id is not null;
create index sign_in_flows_of_session on sign_in_flows (session_id) where session_id is not null;
create index sign_in_flows_of_address on sign_in_flows (challenge_email) where challenge_email is not null;
create index sign_in_flows_of_recipient on sign_in_flows (challenge_user_id) where challenge_user_id is not null;
create index sign_in_flows_by_expiry on sign_in_flows (expires_at);
create index sign_in_flows_by_secret_expiry on sign_in_flows (greatest(proofs_expire_at, challenge_expires_at))
    where greatest(proofs_expire_at, challenge_expires_at) is not null;
