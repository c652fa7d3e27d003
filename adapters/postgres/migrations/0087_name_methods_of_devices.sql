-- The methods of the last sign-in, as in the audit log. Empty: version 0.9.0 stored it.
alter table devices add column methods text[] not null default '{}';
