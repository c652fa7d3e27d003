-- Challenges that a ceremony used up. Others have no row (docs/adr/0040).
create table used_passkey_challenges (
    challenge_hash  bytea primary key,
    expires_at      timestamptz not null
);
create index used_passkey_challenges_by_age on used_passkey_challenges (expires_at);
