-- A request of a platform owner in a browser looks for the impersonation that they started there.
create index impersonations_of_session on sessions (impersonator_session_id) where impersonator_session_id is not null and ended_at is null;
