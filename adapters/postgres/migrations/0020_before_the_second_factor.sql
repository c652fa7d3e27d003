-- People's own sessions that began before they switched their second factor on, which was not shown in them: good for what is the person's own,
-- and not to sign in anywhere with. In which session it was switched on nobody knows of those that are there already.
alter table sessions add column mfa_missing boolean not null default false;
update sessions s set mfa_missing = true
from users u where u.id = s.user_id and s.ended_at is null and s.service_id is null and s.created_at < u.mfa_enabled_at;
