-- Where the application starts a sign-in, after one that took too long
alter table services add column initiate_login_uri text;
