-- The decision that a session meets the sign-in policy with this version. The nil UUID stands for the platform.
create table policy_passes (
    session_id    uuid not null references sessions on delete cascade,
    org_id        uuid not null,
    version       bigint not null,
    role          text,  -- that the decision was made for
    valid_until   timestamptz not null,  -- then the policy is asked again
    used_at       timestamptz not null,  -- the last use of the organization in the session, less a tenth of the idle time at most
    reminded_at   timestamptz,  -- when the user was last told about a rule that starts later
    primary key (session_id, org_id)
) with (fillfactor = 80);
