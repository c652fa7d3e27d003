-- Who came to use a service by being signed in to it with SAML as a member, and by nothing else: they use it no longer than they are members.
-- Of those who are there already nobody knows any more how they came, so they are users in their own right.
alter table service_users add column by_membership boolean not null default false;

-- How often a service was sent the same request to sign somebody out: whoever comes back without an answer is sent there once more, since a
-- second click may have kept the browser from getting there.
alter table saml_logout_requests add column times_sent smallint not null default 0;
update saml_logout_requests set times_sent = 1 where sent_at is not null;
