-- Whether the user authenticated for this session. An identity provider may have done so earlier, and said nothing about it.
alter table sessions add column fresh boolean not null default true;
