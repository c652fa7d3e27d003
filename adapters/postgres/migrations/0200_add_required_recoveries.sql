-- When the link "This wasn't me" removed a factor that a sign-in policy asks for. Until a recovery, the account gets no new one.
alter table users add column recovery_required_at timestamptz;
