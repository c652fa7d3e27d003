-- Who may use a service, and where "My applications" opens it. `saml_self_enrolled`: under the policy `anyone`, SAML also admits users who
-- enrolled themselves. The constraints are "not valid", because every present row has the default: so no row is read.
alter table services
    add column access_policy text not null default 'anyone',
    add column saml_self_enrolled boolean not null default false,
    add column launch_url text,
    add constraint services_access_policy check (access_policy in ('anyone', 'members', 'assigned')) not valid;

-- How a user came to a service. Rows of unknown origin count as self-enrolled.
alter table service_users
    add column enrolled_by text not null default 'self',
    add constraint service_users_enrolled_by check (enrolled_by in ('self', 'subscription', 'directory', 'admin', 'api_key')) not valid;
create index service_users_assigned on service_users (service_id, created_at, user_id) where enrolled_by in ('directory', 'admin', 'api_key');
