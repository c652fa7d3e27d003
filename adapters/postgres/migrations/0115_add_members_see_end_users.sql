-- Whether the role `member` sees the users of the organization's applications. Version 0.9.0 always lets it.
alter table organizations add column members_see_end_users boolean not null default true;
