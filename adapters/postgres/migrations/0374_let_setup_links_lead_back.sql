-- The page of an application to which the finished page of a set-up link leads back.
alter table setup_links add column return_url text;
