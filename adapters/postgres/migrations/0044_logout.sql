-- Logout of OpenID Connect (RP-Initiated Logout 1.0, Back-Channel Logout 1.0).

alter table services
    add column post_logout_redirect_uris  text[] not null default '{}',
    add column backchannel_logout_uri     text;

-- The end of a browser session ends the sessions of the applications that the user authorized in it,
-- except those with offline access. Whatever ends the browser session, this happens in the same
-- statement.
create function end_application_sessions() returns trigger language plpgsql as $$
begin
    update sessions set ended_at = new.ended_at
    where browser_session_id = new.id and ended_at is null and scope is not null and not 'offline_access' = any(scope);
    return null;
end $$;
create trigger browser_session_ended after update of ended_at on sessions
    for each row when (old.ended_at is null and new.ended_at is not null and new.browser_hash is not null)
    execute function end_application_sessions();
