-- When the user was last reminded of a rule of a sign-in policy that starts later. In place of the time of each session.
alter table users add column policy_reminded_at timestamptz;
alter table policy_passes drop column reminded_at;
